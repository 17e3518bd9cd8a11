// How compilers of LEIR go through a program: nests, their loops and equations in written order, and the nodes of typed
// trees with the branches of lazy operators. No recursion, as both may be deep.
#pragma once

#include <set>

#include "leir/typed.hpp"

namespace cleave::leir {

class Walker {
 public:
  virtual ~Walker() = default;

 protected:
  // `language` is what is refused when loops are nested deeper than 64.
  Walker(const Program& program, std::string language) : p_(program), language_(std::move(language)) {}

  // A top-level nest. Unless `gives_first_values` refuses: where the accumulator of a nest's only equation can be given
  // its first values all at once, that is done before the loop of its first reduction; `first_values_given` says so of
  // the equation.
  Diagnostics nest(uint32_t root);
  bool first_values_given(uint32_t item) const { return given_.contains(item); }
  Diagnostic refuse(const std::string& why) const;

  virtual bool gives_first_values(uint32_t /*nest*/) const { return true; }

  virtual void begin_item(uint32_t /*item*/) {}
  virtual Diagnostics begin_loop(uint32_t loop) = 0;
  virtual void end_loop(uint32_t loop) = 0;
  virtual Diagnostics equation(uint32_t item) = 0;
  // One element of the accumulator gets its first value; the loops of its subscripts are open.
  virtual Diagnostics first_value(uint32_t item) = 0;

  // The nodes below `root` that are not done, operands first.
  void tree(const Typed& code, NodeId root);
  virtual bool done(NodeId node) const = 0;
  virtual void operation(NodeId node) = 0;
  // A lazy operator whose condition (first operand) is there: its next operand follows, when it is needed.
  virtual void begin_branch(NodeId lazy) = 0;
  virtual void other_branch(NodeId select) = 0;
  virtual void end_branch(NodeId lazy) = 0;

  const Program& p_;

 private:
  uint32_t first_reduction(uint32_t nest) const;
  Diagnostics first_values(uint32_t nest, uint32_t from);
  Diagnostics enter(uint32_t loop);

  std::string language_;
  size_t depth_ = 0;
  std::set<uint32_t> given_;
};

}  // namespace cleave::leir
