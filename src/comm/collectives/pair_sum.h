// How recursive doubling, recursive halving and binomial trees begin: the rank that stands for a
// pair adds the contributions of both, so that every term has a partial result (DoublingPlan).
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "trireme/comm/reduce.h"
#include "trireme/comm/sum_tree.h"
#include "trireme/comm/transport.h"

namespace trireme {

class PairSum {
 public:
  // What a term has of `count` elements whose contribution lies at `own`.
  struct Term {
    Buffer partial;   // none if partial results lie where the contribution was
    Buffer received;  // has room for a partial result of another term

    std::byte* partial_at(std::byte* own) const { return partial ? partial.get() : own; }
  };

  // The transport and the plan must outlive it.
  PairSum(Transport& transport, const DoublingPlan& plan, ReduceOp op, DType dtype)
      : transport_(transport),
        plan_(plan),
        op_(op),
        dtype_(dtype),
        partial_type_(trireme::partial_type(op, dtype)) {}

  DType partial_type() const { return partial_type_; }
  std::size_t partial_width() const { return size_of(partial_type_); }

  // The first stage: brings a pair's contributions together. `receives_more` says whether other
  // terms will give this one their partial results.
  void join(Term& term, const std::byte* own, std::size_t count, bool receives_more = true) {
    const std::size_t contribution = count * size_of(dtype_), partial = count * partial_width();
    if (!plan_.has_term) return transport_.send(own, contribution, plan_.partner);
    if (receives_more || plan_.has_partner()) term.received = transport_.workspace(partial);
    if (partial_type_ != dtype_) term.partial = transport_.workspace(partial);
    if (plan_.has_partner()) {
      transport_.receive(term.received.get(), contribution, plan_.partner);
    }
  }
  // The second stage, of ranks that stand for terms: makes the term's partial result.
  void begin(const Term& term, std::byte* own, std::size_t count) {
    if (!plan_.has_partner() && !term.partial) return;
    std::array<const std::byte*, 2> sources{own, term.received.get()};
    if (plan_.has_partner() && plan_.partner_is_left()) std::swap(sources[0], sources[1]);
    transport_.reduce(op_, dtype_, std::span(sources).first(plan_.has_partner() ? 2 : 1),
                      partial_type_, term.partial_at(own), count);
  }

 private:
  Transport& transport_;
  const DoublingPlan& plan_;
  ReduceOp op_;
  DType dtype_, partial_type_;
};

}  // namespace trireme
