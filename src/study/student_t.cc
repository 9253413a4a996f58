// This has a file of its own, since Boost's header takes long to compile.
#include <boost/math/distributions/students_t.hpp>

#include "trireme/base/error.h"
#include "trireme/study/scaling.h"

namespace trireme::scaling {

double student_t(int degrees) {
  TRIREME_CHECK(degrees >= 1, "Student's t needs a degree of freedom");
  return boost::math::quantile(boost::math::students_t(degrees), 0.975);
}

}  // namespace trireme::scaling
