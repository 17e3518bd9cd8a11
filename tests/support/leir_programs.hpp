// Random LEIR: any syntax, for printing and parsing. Header-only, as it serves tests of a room that knows no
// interpreter.
#pragma once

#include <string>

#include "leir/syntax.hpp"
#include "support/choices.hpp"

namespace cleave::testing {

class LeirSyntaxGenerator {
 public:
  explicit LeirSyntaxGenerator(Choices& c) : c_(c) {}

  leir::Syntax make() {
    for (uint64_t i = c_.below(3); i > 0; --i) {
      leir::HeaderEntry h;
      h.role = static_cast<leir::Role>(c_.below(4));
      h.name = s_.intern(fresh_variable());
      h.type = static_cast<leir::Type>(c_.below(13));
      for (uint64_t d = c_.below(4); d > 0; --d)
        h.dims.push_back(c_.chance(80) ? leir::Dim{c_.between(0, 50), leir::kNone} : leir::Dim{0, s_.intern("N")});
      if (c_.chance(20)) h.values = {{c_.between(-5, 0), c_.between(0, 9)}};
      s_.header.push_back(h);
    }
    for (uint64_t i = 1 + c_.below(3); i > 0; --i) nest(0);
    return std::move(s_);
  }

 private:
  std::string word(std::string_view letters, uint64_t most) {
    std::string w;
    for (uint64_t n = 1 + c_.below(most); n > 0; --n) w += letters[c_.below(letters.size())];
    return w;
  }
  std::string variable() {
    return std::string(1, "ACDEFGHIJKMNOQRSWXYZ"[c_.below(20)]) + (c_.chance(20) ? word("acdfgh", 2) : "");
  }
  // Header entries are declared once.
  std::string fresh_variable() {
    ++next_;
    return std::string(1, "ACDEFG"[next_ % 6]) + std::string(next_ / 6, 'a');
  }
  std::string plain() {
    while (true) {
      const std::string w = word("acdfghijklmnopqrsuw", 2);
      if (!leir::refuse_index(w)) return w;
    }
  }
  void nest(int depth) {
    std::vector<leir::Loop> loops;
    for (uint64_t n = 1 + c_.below(3); n > 0; --n) {
      leir::Loop l;
      l.kind = static_cast<leir::Kind>(c_.below(5));
      const std::string index = l.kind == leir::Kind::bind ? std::string(1, "bt"[c_.below(2)]) + "xyz"[c_.below(3)] +
                                                                 (c_.chance(30) ? word("abc", 2) : "")
                                                           : plain();
      l.index = s_.intern(index);
      l.extent = c_.chance(80) ? s_.integer(c_.between(1, 2000)) : expr(2);
      const leir::Expr& e = s_.exprs[l.extent];
      if (e.op == leir::Op::integer && e.integer == 0) l.extent = s_.integer(1);
      loops.push_back(l);
    }
    const uint32_t item = s_.begin_nest(loops);
    for (uint64_t n = 1 + c_.below(3); n > 0; --n) {
      if (depth < 3 && c_.chance(25)) {
        nest(depth + 1);
      } else {
        const leir::ExprId target = tensor(1);
        s_.equation(target, expr(4));
      }
    }
    s_.end_nest(item);
  }
  leir::ExprId tensor(int depth) {
    std::vector<leir::ExprId> subscripts;
    for (uint64_t n = c_.below(4); n > 0; --n) subscripts.push_back(expr(depth));
    return s_.tensor(s_.intern(variable()), static_cast<leir::Type>(c_.below(13)),
                     static_cast<leir::Scope>(c_.below(3)), subscripts);
  }
  leir::ExprId expr(int depth) {
    using leir::Op;
    if (depth <= 0 || c_.chance(20)) {
      switch (c_.below(5)) {
        case 0: return s_.integer(c_.between(0, 100));
        case 1: return s_.real(c_.uniform() * (c_.chance(50) ? 1e-9 : 1e12));
        case 2: return s_.infinity();
        default: return s_.index(s_.intern(plain()));
      }
    }
    switch (c_.below(6)) {
      case 0: return tensor(depth - 1);
      case 1: return s_.unary(expr(depth - 1));
      case 2: {
        const auto f = static_cast<leir::Function>(c_.below(leir::all_functions().size()));
        std::vector<leir::ExprId> arguments;
        for (int i = 0; i < leir::info(f).arity; ++i) arguments.push_back(expr(depth - 1));
        return s_.call(f, arguments);
      }
      case 3: {
        std::vector<leir::ExprId> operands = {expr(depth - 1)};
        std::vector<leir::Comparison> by;
        for (uint64_t n = 1 + c_.below(2); n > 0; --n) {
          by.push_back(static_cast<leir::Comparison>(c_.below(6)));
          operands.push_back(expr(depth - 1));
        }
        return s_.compare(operands, by);
      }
      case 4: {
        const leir::ExprId a = expr(depth - 1), b = expr(depth - 1);
        return s_.binary(Op::power, a, b);
      }
      default: {
        constexpr Op kOps[] = {Op::logical_or, Op::logical_and, Op::add,      Op::sub,
                               Op::mul,        Op::div,         Op::floordiv, Op::mod};
        const leir::ExprId a = expr(depth - 1), b = expr(depth - 1);
        return s_.binary(kOps[c_.below(8)], a, b);
      }
    }
  }

  Choices& c_;
  leir::Syntax s_;
  size_t next_ = 0;
};

}  // namespace cleave::testing
