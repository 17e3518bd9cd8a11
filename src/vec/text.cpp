// Printer and parser of the vector IR; the grammar is in docs/vec.md.
#include <algorithm>
#include <map>
#include <optional>

#include "base/codes.hpp"
#include "base/lexer.hpp"
#include "vec/vec.hpp"

namespace cleave::vec {

namespace {

bool has_fn(Op op) { return op == Op::apply || op == Op::reduce; }
bool has_dtype(Op op) {
  return op == Op::load || op == Op::store || op == Op::stream || op == Op::gather || op == Op::scatter;
}
bool has_indices(Op op) {
  return op == Op::shuffle || op == Op::extract || op == Op::insert || op == Op::prefetch || op == Op::matrix_bf16;
}

class Printer {
 public:
  explicit Printer(const Function& f) : f_(f) {}

  std::string print() {
    std::string quoted;
    for (const char c : f_.name) {
      if (c == '"' || c == '\\') quoted += '\\';
      if (c == '\n')
        quoted += "\\n";
      else if (c == '\t')
        quoted += "\\t";
      else
        quoted += c;
    }
    const auto& arguments = f_.blocks[f_.body].arguments;
    std::vector<std::string> names;
    for (const Value v : arguments) names.push_back(name(v));
    out_ = fmt::format("func \"{}\"({}) {{\n", quoted, fmt::join(names, ", "));
    constants(f_.body);
    block(f_.body, 1);
    return out_ + "}\n";
  }

 private:
  std::string name(Value v) {
    auto [it, added] = numbers_.try_emplace(v.index, numbers_.size());
    return fmt::format("v{}", it->second);
  }
  std::string list(const std::vector<Value>& values, size_t from = 0) {
    std::string s;
    for (size_t i = from; i < values.size(); ++i) s += (i > from ? ", " : "") + name(values[i]);
    return s;
  }
  void line(int depth, const std::string& text) {
    out_ += std::string(static_cast<size_t>(2 * depth), ' ') + text + "\n";
  }

  // Constants come first, in the order of their first use.
  void constants(BlockId id) {
    for (const InstId inst : f_.blocks[id].insts) {
      const Inst& i = f_.insts[inst];
      for (const Value v : i.operands) {
        const ValueInfo& c = f_.values[v];
        if (c.kind != ValueKind::constant || numbers_.contains(v.index)) continue;
        const std::string text =
            is_float(c.type.elem) ? print_number(constant_real(c)) : fmt::format("{}", constant_int(c));
        const std::string target = name(v);
        line(1, fmt::format("{} = const {} : {}", target, text, vec::print(c.type)));
      }
      for (const BlockId b : i.blocks) constants(b);
    }
  }

  void block(BlockId id, int depth) {
    for (const InstId inst : f_.blocks[id].insts) instruction(f_.insts[inst], depth);
  }

  std::string types(const std::vector<Value>& values) {
    std::string s;
    for (const Value v : values) s += (s.empty() ? " : " : ", ") + vec::print(f_.values[v].type);
    return s;
  }

  void instruction(const Inst& i, int depth) {
    switch (i.op) {
      case Op::for_loop: {
        const auto& arguments = f_.blocks[i.blocks[0]].arguments;
        const std::string results = list(i.results);  // numbered first: the text reads in order
        std::string head = fmt::format("for {} = {} to {} step {}", name(arguments[0]), name(i.operands[0]),
                                       name(i.operands[1]), name(i.operands[2]));
        std::string carried;
        for (size_t k = 1; k < arguments.size(); ++k)
          carried += fmt::format("{}{} = {}", k > 1 ? ", " : "", name(arguments[k]), name(i.operands[k + 2]));
        if (!carried.empty()) head += fmt::format(" iter({})", carried);
        line(depth, (results.empty() ? "" : results + " = ") + head + " {");
        block(i.blocks[0], depth + 1);
        return line(depth, "}");
      }
      case Op::if_else: {
        const std::string condition = name(i.operands[0]);
        const std::string results = list(i.results);
        line(depth, (results.empty() ? "" : results + " = ") + "if " + condition + types(i.results) + " {");
        block(i.blocks[0], depth + 1);
        line(depth, "} else {");
        block(i.blocks[1], depth + 1);
        return line(depth, "}");
      }
      default: break;
    }
    std::string text = info(i.op).name;
    if (has_fn(i.op)) text += fmt::format(".{}", cleave::info(i.fn).name);
    if (has_dtype(i.op)) text += fmt::format(".{}", cleave::name(i.dtype));
    const size_t count_at = i.op == Op::load ? 1 : i.op == Op::store ? 2 : i.operands.size();
    for (size_t k = 0; k < i.operands.size(); ++k)
      text += (k == 0 ? " " : k == count_at ? " count " : ", ") + name(i.operands[k]);
    if (has_indices(i.op)) text += fmt::format(" [{}]", fmt::join(i.indices, ", "));
    const std::string results = list(i.results);
    line(depth, (results.empty() ? "" : results + " = ") + text + types(i.results));
  }

  const Function& f_;
  std::string out_;
  std::map<uint32_t, size_t> numbers_;
};

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : c_(std::move(tokens)) {}

  Result<Module> parse() {
    Module module;
    while (!c_.at_end() && !c_.failed()) function(module);
    if (c_.failed()) return c_.errors();
    Diagnostics problems = verify(module);
    if (!problems.empty()) return problems;
    return module;
  }

 private:
  void function(Module& module) {
    if (!c_.expect("func")) return;
    const auto title = c_.expect_string("the function's name");
    if (!title) return;
    Function f(*title);
    f_ = &f;
    names_.clear();
    if (!c_.expect("(")) return;
    for (size_t k = 0; k < 3; ++k) {
      if (k > 0 && !c_.expect(",")) return;
      if (!define(f.blocks[f.body].arguments[k])) return;
    }
    if (!c_.expect(")") || !c_.expect("{")) return;
    block(f.body);
    if (c_.failed()) return;
    module.functions.push_back(std::move(f));
  }

  // Reads a new name and binds it.
  bool define(Value v) {
    const Token t = c_.peek();
    const auto text = c_.expect_identifier("a name for a value");
    if (!text) return false;
    if (!names_.emplace(*text, v).second) {
      c_.fail(diagnose_at(t.range, Code::duplicate_name, *text));
      return false;
    }
    return true;
  }
  Value use() {
    const Token t = c_.peek();
    const auto text = c_.expect_identifier("a value");
    if (!text) return {};
    const auto it = names_.find(*text);
    if (it != names_.end()) return it->second;
    c_.fail(diagnose_at(t.range, Code::undefined_name, *text));
    return {};
  }
  std::optional<Type> type() {
    const Token t = c_.peek();
    const auto text = c_.expect_identifier("a type");
    if (!text) return std::nullopt;
    const size_t x = text->find('x');
    const std::string elem = text->substr(0, x);
    Type out{Elem::ptr, 1};
    bool good = true;
    if (elem != "ptr") {
      const auto d = dtype_from_name(elem);
      good = d && *d != DType::f16 && *d != DType::bf16;
      if (good) out.elem = elem_of(*d);
    }
    if (x != std::string::npos) {
      int n = 0;
      const std::string digits = text->substr(x + 1);
      for (const char ch : digits) n = ch >= '0' && ch <= '9' && n <= kMaxLanes ? 10 * n + (ch - '0') : kMaxLanes + 1;
      good = good && !digits.empty() && digits[0] != '0' && n >= 2 && n <= kMaxLanes;
      if (good) out.lanes = static_cast<uint16_t>(n);
    }
    if (good) return out;
    c_.fail(
        diagnose_at(t.range, Code::unexpected_token, fmt::format("`{}`", *text), "a type such as f32x8, i64 or ptr"));
    return std::nullopt;
  }

  void block(BlockId id) {
    if (!c_.enter()) return;
    while (!c_.failed() && !c_.at("}")) {
      if (c_.at_end()) return c_.fail_expected("`}`");
      statement(id);
    }
    if (!c_.failed()) c_.expect("}");
    c_.leave();
  }

  void statement(BlockId block_id) {
    std::vector<Token> targets;
    if (c_.peek().kind == TokenKind::identifier && (c_.peek(1).text == "=" || c_.peek(1).text == ",")) {
      do {
        targets.push_back(c_.peek());
        if (!c_.expect_identifier("a name")) return;
      } while (c_.accept(","));
      if (!c_.expect("=")) return;
    }
    const Token head = c_.peek();
    const auto text = c_.expect_identifier("an operation");
    if (!text) return;
    if (*text == "const") return constant(targets);

    const size_t dot = text->find('.');
    const std::string op_name = text->substr(0, dot);
    const std::string suffix = dot == std::string::npos ? "" : text->substr(dot + 1);
    Inst inst;
    bool known = false;
    for (int k = 0; k < kOps && !known; ++k) {
      const Op op = static_cast<Op>(k);
      if (op_name == (op == Op::for_loop ? "for" : op == Op::if_else ? "if" : info(op).name)) {
        inst.op = op;
        known = true;
      }
    }
    if (known && has_fn(inst.op)) {
      const auto fn = fn_from_name(suffix);
      known = fn.has_value();
      if (fn) inst.fn = *fn;
    } else if (known && has_dtype(inst.op)) {
      const auto d = dtype_from_name(suffix);
      known = d.has_value();
      if (d) inst.dtype = *d;
    } else if (!suffix.empty()) {
      known = false;
    }
    if (!known) return c_.fail(diagnose_at(head.range, Code::unknown_operator, *text));

    std::vector<Type> types;
    if (inst.op == Op::for_loop) {
      for_loop(inst, types);
    } else if (inst.op == Op::if_else) {
      if_else(inst, types);
    } else {
      plain(inst, types);
    }
    if (c_.failed()) return;
    if (types.size() != targets.size())
      return c_.fail(diagnose_at(head.range, Code::invalid_vector_program, f_->name, *text,
                                 fmt::format("has {} results for {} names", types.size(), targets.size())));
    const InstId id = f_->insts.add(std::move(inst));
    for (size_t k = 0; k < types.size(); ++k) {
      const Value v = f_->values.add({types[k], ValueKind::result, id, {}, 0});
      f_->insts[id].results.push_back(v);
      if (!names_.emplace(std::string(targets[k].text), v).second)
        return c_.fail(diagnose_at(targets[k].range, Code::duplicate_name, targets[k].text));
    }
    f_->blocks[block_id].insts.push_back(id);
  }

  void constant(const std::vector<Token>& targets) {
    const Token at = c_.peek();
    // Integers are read exactly, reals as doubles; which it is, the type says afterwards.
    const bool whole = at.kind == TokenKind::integer || (at.text == "-" && c_.peek(1).kind == TokenKind::integer);
    std::optional<int64_t> integer;
    std::optional<double> number;
    if (whole)
      integer = c_.expect_integer("a constant");
    else
      number = c_.expect_number("a constant");
    if (c_.failed() || !c_.expect(":")) return;
    const auto t = type();
    if (!t) return;
    if (t->elem == Elem::ptr || (!is_float(t->elem) && !integer) || targets.size() != 1)
      return c_.fail(diagnose_at(at.range, Code::invalid_vector_program, f_->name, "const",
                                 "one name, and a whole number for an integer type"));
    const uint64_t bits = is_float(t->elem) ? real_bits(t->elem, integer ? static_cast<double>(*integer) : *number)
                                            : static_cast<uint64_t>(wrap_to(dtype_of(t->elem), *integer));
    const Value v = f_->values.add({*t, ValueKind::constant, {}, {}, bits});
    if (!names_.emplace(std::string(targets[0].text), v).second)
      c_.fail(diagnose_at(targets[0].range, Code::duplicate_name, targets[0].text));
  }

  void type_list(std::vector<Type>& types) {
    if (!c_.accept(":")) return;
    do {
      const auto t = type();
      if (!t) return;
      types.push_back(*t);
    } while (c_.accept(","));
  }

  void plain(Inst& inst, std::vector<Type>& types) {
    if (c_.peek().kind == TokenKind::identifier && !c_.peek().after_newline) {
      do inst.operands.push_back(use());
      while (!c_.failed() && c_.accept(","));
      if ((inst.op == Op::load || inst.op == Op::store) && c_.accept("count")) inst.operands.push_back(use());
    }
    if (has_indices(inst.op)) {
      if (!c_.expect("[")) return;
      do {
        const auto i = c_.expect_integer("an index");
        if (!i) return;
        inst.indices.push_back(static_cast<int32_t>(std::clamp<int64_t>(*i, -1, 1 << 20)));
      } while (c_.accept(","));
      if (!c_.expect("]")) return;
    }
    type_list(types);
  }

  void for_loop(Inst& inst, std::vector<Type>& types) {
    const BlockId id = f_->blocks.add({});
    const Token index = c_.take();
    auto argument = [&](const Token& name, Type type) {
      const Value v = f_->values.add({type, ValueKind::argument, {}, id, 0});
      f_->blocks[id].arguments.push_back(v);
      if (name.kind != TokenKind::identifier)
        c_.fail(diagnose_at(name.range, Code::unexpected_token, fmt::format("`{}`", name.text), "a name"));
      else if (!names_.emplace(std::string(name.text), v).second)
        c_.fail(diagnose_at(name.range, Code::duplicate_name, name.text));
    };
    argument(index, kI64);
    if (c_.failed() || !c_.expect("=")) return;
    inst.operands.push_back(use());
    if (c_.failed() || !c_.expect("to")) return;
    inst.operands.push_back(use());
    if (c_.failed() || !c_.expect("step")) return;
    inst.operands.push_back(use());
    if (!c_.failed() && c_.accept("iter")) {
      if (!c_.expect("(")) return;
      do {
        const Token name = c_.take();
        if (!c_.expect("=")) return;
        const Value init = use();
        if (c_.failed()) return;
        inst.operands.push_back(init);
        types.push_back(f_->values[init].type);
        argument(name, types.back());
      } while (!c_.failed() && c_.accept(","));
      if (c_.failed() || !c_.expect(")")) return;
    }
    if (c_.failed() || !c_.expect("{")) return;
    inst.blocks = {id};
    block(id);
  }

  void if_else(Inst& inst, std::vector<Type>& types) {
    inst.operands.push_back(use());
    type_list(types);
    for (int k = 0; k < 2; ++k) {
      if (c_.failed() || (k == 1 && !c_.expect("else")) || !c_.expect("{")) return;
      const BlockId id = f_->blocks.add({});
      inst.blocks.push_back(id);
      block(id);
    }
  }

  TokenCursor c_;
  Function* f_ = nullptr;
  std::map<std::string, Value, std::less<>> names_;  // of the current function; scopes are the verifier's business
};

}  // namespace

std::string print(const Function& function) { return Printer(function).print(); }

std::string print(const Module& module) {
  std::string out;
  for (const Function& f : module.functions) out += (out.empty() ? "" : "\n") + print(f);
  return out;
}

Result<Module> parse(const SourceText& source) {
  TRY_ASSIGN(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens)).parse();
}

}  // namespace cleave::vec
