"""How tests compute with graphs of ONNX."""
import onnxruntime

onnxruntime.set_default_logger_severity(3)  # errors


def inference_session(path):
    """A session of onnxruntime with two threads that do not spin: other tests run at the same time."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
