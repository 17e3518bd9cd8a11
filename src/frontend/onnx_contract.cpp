// Contractions.
#include <algorithm>
#include <cmath>

#include "frontend/onnx_maker.hpp"
#include "graph/spec.hpp"

namespace cleave::onnx_import {

using graph::ContractSpec;
using graph::IndexNames;
using graph::Op;
using graph::Shape;
using graph::ValueId;

namespace {

Result<ValueId> contract(NodeContext& c, ValueId a, const IndexNames& left, ValueId b, const IndexNames& right,
                         const IndexNames& result) {
  return c.add(Op::contract, {a, b}, {{"spec", graph::print(ContractSpec{{left, right}, result})}});
}

}  // namespace

// NumPy's matmul: leading axes broadcast; a vector has no row (left) or no column (right).
Result<Values> import_matmul(NodeContext& c) {
  const size_t left_rank = c.rank(0), right_rank = c.rank(1);
  if (left_rank == 0 || right_rank == 0) return c.error("a scalar cannot be multiplied as a matrix");
  const size_t batch = std::max(left_rank > 2 ? left_rank - 2 : 0, right_rank > 2 ? right_rank - 2 : 0);
  IndexNames names;
  for (size_t i = 0; i < batch; ++i) names.push_back(fmt::format("b{}", i));
  const auto batch_names = [&](size_t rank) {
    const size_t own = rank > 2 ? rank - 2 : 0;
    return IndexNames(names.end() - static_cast<std::ptrdiff_t>(own), names.end());
  };
  IndexNames left = batch_names(left_rank), right = batch_names(right_rank), result = names;
  if (left_rank > 1) {
    left.push_back("m");
    result.push_back("m");
  }
  left.push_back("k");
  right.push_back("k");
  if (right_rank > 1) {
    right.push_back("n");
    result.push_back("n");
  }
  TRY_ASSIGN(const ValueId a, c.id(0));
  TRY_ASSIGN(const ValueId b, c.id(1));
  // The contraction would stretch an inner extent of 1; a matrix product must not.
  const sym::Expr inner_left = c.in(0).shape.back(), inner_right = c.in(1).shape[right_rank > 1 ? right_rank - 2 : 0];
  if (c.syms().equal(inner_left, inner_right) != sym::Proof::yes) {
    return c.error(fmt::format("{} and {} cannot be multiplied", print_shape(c.syms(), c.in(0).shape),
                               print_shape(c.syms(), c.in(1).shape)));
  }
  return c.one(contract(c, a, left, b, right, result));
}

// alpha A' B' + beta C
Result<Values> import_gemm(NodeContext& c) {
  if (c.rank(0) != 2 || c.rank(1) != 2) return c.error("its operands are no matrices");
  TRY_ASSIGN(const ValueId a, c.id(0));
  TRY_ASSIGN(const ValueId b, c.id(1));
  const bool flip_a = c.attribute_int("transA", 0) != 0, flip_b = c.attribute_int("transB", 0) != 0;
  if (c.syms().equal(c.in(0).shape[flip_a ? 0 : 1], c.in(1).shape[flip_b ? 1 : 0]) != sym::Proof::yes) {
    return c.error(fmt::format("{} and {} cannot be multiplied", print_shape(c.syms(), c.in(0).shape),
                               print_shape(c.syms(), c.in(1).shape)));
  }
  const IndexNames left = flip_a ? IndexNames{"k", "m"} : IndexNames{"m", "k"};
  const IndexNames right = flip_b ? IndexNames{"n", "k"} : IndexNames{"k", "n"};
  TRY_ASSIGN(ValueId y, contract(c, a, left, b, right, {"m", "n"}));
  const auto scaled = [&](ValueId v, double factor) -> Result<ValueId> {
    if (factor == 1) return v;
    return c.add(graph::op_of(Fn::mul), {v, c.builder().literal(factor, c.builder().type(v).dtype)});
  };
  TRY_ASSIGN(y, scaled(y, c.attribute_real("alpha", 1)));
  if (c.has(2) && c.attribute_real("beta", 1) != 0) {
    TRY_ASSIGN(const ValueId bias, c.id(2));
    TRY_ASSIGN(const ValueId addend, scaled(bias, c.attribute_real("beta", 1)));
    const Shape expected = c.builder().type(y).shape;
    TRY_ASSIGN(y, c.add(graph::op_of(Fn::add), {y, addend}));
    if (c.builder().type(y).shape != expected) return c.error("its third operand is larger than the product");
  }
  return c.one(y);
}

namespace {

struct Equation {
  std::vector<IndexNames> operands;
  IndexNames result;
};

// One term: letters name indices, "..." stands for the axes of `broadcast` that the operand has.
Result<IndexNames> parse_term(NodeContext& c, std::string_view term, size_t extra, const IndexNames& broadcast) {
  IndexNames names;
  while (!term.empty()) {
    if (term.starts_with("...")) {
      names.insert(names.end(), broadcast.end() - static_cast<std::ptrdiff_t>(extra), broadcast.end());
      term.remove_prefix(3);
    } else if (std::isalpha(static_cast<unsigned char>(term[0]))) {
      names.emplace_back(1, term[0]);
      term.remove_prefix(1);
    } else {
      return c.error("its equation has a character that is no index");
    }
  }
  return names;
}

Result<Equation> parse_equation(NodeContext& c) {
  std::string text = c.attribute_text("equation", "");
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  if (text.size() > 1000) return c.error("its equation is too long");
  const size_t arrow = text.find("->");
  const std::string_view all(text);
  std::vector<std::string_view> terms;
  for (std::string_view rest = all.substr(0, arrow);;) {
    const size_t comma = rest.find(',');
    terms.push_back(rest.substr(0, comma));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (terms.size() != c.size())
    return c.error(fmt::format("its equation has {} terms for {} operands", terms.size(), c.size()));

  // How many axes "..." has in each operand.
  std::vector<size_t> extra(terms.size(), 0);
  size_t most = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (!c.has(i)) return c.error(fmt::format("operand {} is missing", i));
    const size_t dots = terms[i].find("...");
    const size_t letters = terms[i].size() - (dots == std::string_view::npos ? 0 : 3);
    if (letters > c.rank(i) || (dots == std::string_view::npos && letters != c.rank(i))) {
      return c.error(fmt::format("the term `{}` does not fit an operand of rank {}", shown(terms[i]), c.rank(i)));
    }
    extra[i] = c.rank(i) - letters;
    most = std::max(most, extra[i]);
  }
  IndexNames broadcast;
  for (size_t i = 0; i < most; ++i) broadcast.push_back(fmt::format("e{}", i));
  Equation equation;
  std::string letters;
  for (size_t i = 0; i < terms.size(); ++i) {
    TRY_ASSIGN(IndexNames names, parse_term(c, terms[i], extra[i], broadcast));
    equation.operands.push_back(std::move(names));
    for (const char letter : terms[i]) {
      if (letter != '.') letters += letter;
    }
  }
  if (arrow != std::string::npos) {
    TRY_ASSIGN(equation.result, parse_term(c, all.substr(arrow + 2), most, broadcast));
  } else {
    // Without an arrow: the broadcast axes, then the letters that occur once, in order.
    equation.result = broadcast;
    std::sort(letters.begin(), letters.end());
    for (const char letter : letters) {
      if (std::count(letters.begin(), letters.end(), letter) == 1) equation.result.emplace_back(1, letter);
    }
  }
  for (const auto& name : equation.result) {
    const bool known = std::any_of(equation.operands.begin(), equation.operands.end(), [&](const IndexNames& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    });
    if (!known) return c.error(fmt::format("the index `{}` of its result is in no operand", name));
  }
  return equation;
}

bool contains(const IndexNames& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

namespace {

// An index that one operand names twice: the diagonal, as a masked sum over the later axis.
ValueId diagonals(Maker& m, ValueId v, IndexNames& names) {
  for (size_t i = 0; i < names.size() && m.ok(); ++i) {
    for (size_t j = i + 1; j < names.size() && m.ok();) {
      if (names[i] != names[j]) {
        ++j;
        continue;
      }
      const Shape shape = m.shape(v);
      if (m.context().syms().equal(shape[i], shape[j]) != sym::Proof::yes)
        m.fail(fmt::format("the index `{}` has two extents", names[i]));
      const ValueId same = m.fn(Fn::eq, {m.iota(shape, static_cast<int64_t>(i), DType::i64),
                                         m.iota(shape, static_cast<int64_t>(j), DType::i64)});
      v = m.sum(m.where(same, v, m.like(0, v)), {static_cast<int64_t>(j)});
      names.erase(names.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
  return v;
}

}  // namespace

// Operands are contracted from left to right; an index is summed as soon as nothing later needs it.
Result<Values> import_einsum(NodeContext& c) {
  TRY_ASSIGN(Equation equation, parse_equation(c));
  Maker m(c);
  std::vector<ValueId> operands;
  for (size_t i = 0; i < equation.operands.size(); ++i) operands.push_back(diagonals(m, m.in(i), equation.operands[i]));
  if (!m.ok()) return m.done({});
  ValueId value = operands[0];
  IndexNames names = equation.operands[0];
  for (size_t i = 1; i < equation.operands.size(); ++i) {
    const ValueId next = operands[i];
    IndexNames kept;
    if (i + 1 == equation.operands.size()) {
      kept = equation.result;
    } else {
      for (const IndexNames* side : std::initializer_list<const IndexNames*>{&names, &equation.operands[i]}) {
        for (const auto& name : *side) {
          bool needed = contains(equation.result, name);
          for (size_t later = i + 1; later < equation.operands.size(); ++later) {
            needed = needed || contains(equation.operands[later], name);
          }
          if (needed && !contains(kept, name)) kept.push_back(name);
        }
      }
    }
    TRY_ASSIGN(value, contract(c, value, names, next, equation.operands[i], kept));
    names = std::move(kept);
  }
  if (equation.operands.size() > 1) return c.one(value);

  std::vector<int64_t> summed, perm;
  IndexNames left;
  for (size_t i = 0; i < names.size(); ++i) {
    if (contains(equation.result, names[i])) {
      left.push_back(names[i]);
    } else {
      summed.push_back(static_cast<int64_t>(i));
    }
  }
  for (const auto& name : equation.result) perm.push_back(std::find(left.begin(), left.end(), name) - left.begin());
  if (!summed.empty()) {
    TRY_ASSIGN(value, c.add(Op::sum, {value}, {{"axes", summed}}));
  }
  if (!std::is_sorted(perm.begin(), perm.end())) {
    TRY_ASSIGN(value, c.add(Op::transpose, {value}, {{"perm", perm}}));
  }
  return c.one(value);
}

}  // namespace cleave::onnx_import
