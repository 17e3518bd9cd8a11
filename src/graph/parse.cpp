// Parser of the graph language; the grammar is docs/graph.md, cited rule by rule.
//
// After an error in a statement, parsing goes on at the next line, so that one run reports all of them; names whose
// definition failed are remembered so that their uses are not reported again.
#include <set>

#include "base/codes.hpp"
#include "base/lexer.hpp"
#include "graph/graph.hpp"
#include "sym/text.hpp"

namespace cleave::graph {

namespace {

constexpr size_t kMaxErrors = 50;

struct Parser {
  const SourceText& source;
  const LoadConstant& load;
  std::vector<Token> tokens;
  Builder builder{"graph"};
  std::unordered_map<std::string, ValueId> values = {};
  std::vector<std::string> assigned = {};  // by the statement that is read
  std::set<std::string> poisoned = {};     // names whose definition has an error
  std::set<std::string> output_names = {};
  Diagnostics errors = {};
  TokenCursor* cursor = nullptr;

  std::optional<sym::Expr> expr() {
    return sym::parse_expr(*cursor, builder.syms(), [&](const std::string& name) -> std::optional<sym::Expr> {
      const auto s = builder.syms().find_symbol(name);
      for (sym::Expr d : builder.graph().dims())
        if (s == d) return d;
      return std::nullopt;
    });
  }

  // list := "[" [ item { "," item } ] "]"
  template <class Item>
  bool list(Item item) {
    if (!cursor->expect("[")) return false;
    if (cursor->accept("]")) return true;
    do {
      if (!item()) return false;
    } while (cursor->accept(","));
    return cursor->expect("]");
  }

  std::optional<Shape> extents() {
    Shape s;
    const bool ok = list([&] {
      const auto e = expr();
      if (e) s.push_back(*e);
      return e.has_value();
    });
    if (!ok) return std::nullopt;
    return s;
  }

  std::optional<DType> dtype() {
    const Token t = cursor->peek();
    const auto word = cursor->expect_identifier("a dtype");
    if (!word) return std::nullopt;
    const auto d = dtype_from_name(*word);
    if (!d) cursor->fail(diagnose_at(t.range, Code::unknown_dtype, *word));
    return d;
  }

  // type := dtype [ "[" extents "]" ]
  std::optional<Type> type() {
    const auto d = dtype();
    if (!d) return std::nullopt;
    Type t{*d, {}};
    if (cursor->at("[")) {
      auto s = extents();
      if (!s) return std::nullopt;
      t.shape = std::move(*s);
    }
    return t;
  }

  // dim := "dim" NAME [ "in" INT ".." INT ]
  void dim() {
    const Token t = cursor->peek();
    const auto name = cursor->expect_identifier("the name of a dimension");
    if (!name) return;
    int64_t lo = 0, hi = int64_t{1} << 31;
    if (cursor->accept("in")) {
      const auto a = cursor->expect_integer("the least extent");
      if (!a || !cursor->expect("..")) return;
      const auto b = cursor->expect_integer("the greatest extent");
      if (!b) return;
      lo = *a;
      hi = *b;
    }
    if (builder.syms().find_symbol(*name)) return cursor->fail(diagnose_at(t.range, Code::duplicate_name, *name));
    if (const std::string fault = sym::range_fault(lo, hi, kMaxElements); !fault.empty())
      return cursor->fail(diagnose_at(t.range, Code::bad_shape, *name, fault));
    builder.dim(*name, lo, hi);
  }

  // data := "splat" "(" NUM ")" | ("normal" | "uniform") "(" key "=" NUM {...} ")" | "file" "(" STRING ")" | list of
  // NUM
  std::optional<ConstantData> data(const Type& type) {
    ConstantData d;
    if (cursor->accept("splat")) {
      if (!cursor->expect("(")) return std::nullopt;
      const auto v = cursor->expect_number("a number");
      if (!v || !cursor->expect(")")) return std::nullopt;
      d.value = *v;
      return d;
    }
    if (cursor->at("normal") || cursor->at("uniform")) {
      d.kind = cursor->take().text == "normal" ? ConstantData::Kind::normal : ConstantData::Kind::uniform;
      if (!cursor->expect("(")) return std::nullopt;
      while (!cursor->at(")")) {
        const Token t = cursor->peek();
        const auto key = cursor->expect_identifier("`seed`, `mean`, `low` or `scale`");
        if (!key || !cursor->expect("=")) return std::nullopt;
        if (*key == "seed") {
          const auto v = cursor->expect_integer("a seed");
          if (!v) return std::nullopt;
          d.seed = static_cast<uint64_t>(*v);
        } else if (*key == "mean" || *key == "low" || *key == "scale") {
          const auto v = cursor->expect_number("a number");
          if (!v) return std::nullopt;
          (*key == "scale" ? d.scale : d.value) = *v;
        } else {
          cursor->fail(diagnose_at(t.range, Code::undefined_name, *key));
          return std::nullopt;
        }
        if (!cursor->accept(",") && !cursor->at(")")) {
          cursor->fail_expected("`,` or `)`");
          return std::nullopt;
        }
      }
      cursor->take();
      return d;
    }
    d.kind = ConstantData::Kind::bytes;
    std::vector<int64_t> shape;
    for (sym::Expr e : type.shape) {
      const auto c = builder.syms().as_constant(e);
      if (!c || *c < 0) {
        cursor->fail(diagnose(Code::bad_shape, "const", "a constant needs constant extents"));
        return std::nullopt;
      }
      shape.push_back(*c);
    }
    if (cursor->at("file")) {
      const Token t = cursor->take();
      if (!cursor->expect("(")) return std::nullopt;
      const auto path = cursor->expect_string("a path");
      if (!path || !cursor->expect(")")) return std::nullopt;
      if (!load) {
        Diagnostic d = diagnose_at(t.range, Code::bad_attribute, "const", "data",
                                   fmt::format("is in the file `{}`, and a text alone has no files", *path));
        d.hint = "say which folder they lie in, or read the graph from its file";
        cursor->fail(std::move(d));
        return std::nullopt;
      }
      auto bytes = load(*path, type.dtype, shape);
      if (!bytes) {
        Diagnostic first = bytes.errors().front();
        first.range = t.range;
        cursor->fail(std::move(first));
        return std::nullopt;
      }
      d.bytes = *bytes;
      d.path = *path;
      return d;
    }
    auto bytes = std::make_shared<std::vector<std::byte>>();
    const int64_t width = byte_size(type.dtype);
    const bool ok = list([&] {
      bytes->resize(bytes->size() + static_cast<size_t>(width));
      std::byte* at = bytes->data() + bytes->size() - width;
      if (is_real(type.dtype)) {
        const auto v = cursor->expect_number("a number");
        if (v) store_real(type.dtype, at, *v);
        return v.has_value();
      }
      const auto v = cursor->expect_integer("an integer");
      if (v) store_integer(type.dtype, at, *v);
      return v.has_value();
    });
    if (!ok) return std::nullopt;
    d.bytes = std::move(bytes);
    return d;
  }

  bool define(const Token& at, const std::string& name, ValueId value) {
    if (!values.emplace(name, value).second) {
      cursor->fail(diagnose_at(at.range, Code::duplicate_name, name));
      return false;
    }
    builder.set_name(value, name);
    return true;
  }

  // leaf := ("input" | "const" | "scalar") NAME ":" type [ "as" STRING ] [ "=" data ]
  void leaf(Op op) {
    const Token at = cursor->peek();
    const auto name = cursor->expect_identifier("a name");
    if (!name) return;
    assigned.push_back(*name);
    if (!cursor->expect(":")) return;
    const auto t = type();
    if (!t) return;
    std::string own = *name;
    if (cursor->accept("as")) {
      const auto text = cursor->expect_string("the external name");
      if (!text) return;
      own = *text;
    }
    if (values.count(*name)) return cursor->fail(diagnose_at(at.range, Code::duplicate_name, *name));
    Attributes attributes{{"name", own}, {"dtype", t->dtype}};
    if (op != Op::scalar)
      attributes.set("shape", t->shape);
    else if (!t->shape.empty())
      return cursor->fail(diagnose_at(at.range, Code::bad_shape, "scalar", "a run-time scalar has no axes"));
    if (op == Op::constant) {
      if (!cursor->expect("=")) return;
      auto d = data(*t);
      if (!d) return;
      attributes.set("data", std::move(*d));
    }
    const std::vector<Type> none;
    const auto checked = infer(builder.syms(), op, none, attributes);
    if (!checked) return fail_at(at, checked.errors());
    const auto elements = builder.syms().bounds(builder.syms().product(t->shape));
    if (t->shape.size() > kMaxRank)
      return cursor->fail(diagnose_at(at.range, Code::bad_shape, *name,
                                      fmt::format("has {} axes, more than {}", t->shape.size(), kMaxRank)));
    if (elements.lo > kMaxElements)
      return cursor->fail(diagnose_at(at.range, Code::extent_too_large, *name, elements.lo, kMaxElements));
    const ValueId v = op == Op::input ? builder.input(own, t->dtype, t->shape)
                      : op == Op::scalar
                          ? builder.scalar(own, t->dtype)
                          : builder.constant(own, t->dtype, t->shape, attributes.get<ConstantData>("data"));
    define(at, *name, v);
  }

  void fail_at(const Token& at, const Diagnostics& found) {
    Diagnostic d = found.front();
    d.range = at.range;
    cursor->fail(std::move(d));
  }

  std::optional<Attribute> attribute_value(const AttributeInfo& a) {
    auto lift = [](auto v) -> std::optional<Attribute> {
      if (!v) return std::nullopt;
      return Attribute(*v);
    };
    switch (a.type) {
      case AttributeType::integer: return lift(cursor->expect_integer("an integer"));
      case AttributeType::real: return lift(cursor->expect_number("a number"));
      case AttributeType::boolean: {
        if (cursor->accept("true")) return true;
        if (cursor->accept("false")) return false;
        cursor->fail_expected("`true` or `false`");
        return std::nullopt;
      }
      case AttributeType::text: return lift(cursor->expect_string("a string"));
      case AttributeType::dtype: return lift(dtype());
      case AttributeType::ints: {
        std::vector<int64_t> v;
        const bool ok = list([&] {
          const auto i = cursor->expect_integer("an integer");
          if (i) v.push_back(*i);
          return i.has_value();
        });
        if (!ok) return std::nullopt;
        return Attribute(std::move(v));
      }
      case AttributeType::extents: return lift(extents());
      case AttributeType::data: break;
    }
    cursor->fail_expected("an attribute");
    return std::nullopt;
  }

  // A literal of integers holds what 64 bits do.
  bool fits(const Token& at, double value, DType dtype) {
    if (is_real(dtype) || (value >= -0x1p63 && value < 0x1p63)) return true;
    cursor->fail(diagnose_at(at.range, Code::number_out_of_range, print_number(value, true), "64 bits"));
    return false;
  }

  // operand := NAME | NUM | call     (a bare number is a literal: f32 when written with a point, else i64)
  std::optional<ValueId> operand() {
    const Token t = cursor->peek();
    if (t.kind == TokenKind::integer || t.kind == TokenKind::real || t.text == "-" || t.text == "inf" ||
        t.text == "nan") {
      const bool real = t.kind == TokenKind::real || cursor->peek(1).kind == TokenKind::real || t.text == "inf" ||
                        t.text == "nan" || cursor->peek(1).text == "inf";
      const auto v = cursor->expect_number("a number");
      if (!v || !fits(t, *v, real ? DType::f32 : DType::i64)) return std::nullopt;
      return builder.literal(*v, real ? DType::f32 : DType::i64);
    }
    if (t.kind == TokenKind::identifier && cursor->peek(1).text == "(") {
      const auto results = call();
      if (!results) return std::nullopt;
      if (results->size() != 1) {
        cursor->fail(diagnose_at(t.range, Code::wrong_arity, t.text, "one result here", results->size()));
        return std::nullopt;
      }
      return results->front();
    }
    const auto name = cursor->expect_identifier("a value");
    if (!name) return std::nullopt;
    auto it = values.find(*name);
    if (it == values.end()) {
      cursor->fail(diagnose_at(t.range, Code::undefined_name, *name));
      return std::nullopt;
    }
    return it->second;
  }

  // call := OPERATOR "(" [ argument { "," argument } ] ")"     argument := KEY "=" value | STRING (the spec) | operand
  std::optional<std::vector<ValueId>> call() {
    const Token t = cursor->peek();
    const auto name = cursor->expect_identifier("an operator");
    if (!name) return std::nullopt;
    const auto op = op_from_name(*name);
    if (!op || *op == Op::input || *op == Op::constant || *op == Op::scalar) {
      cursor->fail(diagnose_at(t.range, Code::unknown_operator, *name));
      return std::nullopt;
    }
    if (!cursor->enter() || !cursor->expect("(")) return std::nullopt;
    std::vector<ValueId> operands;
    Attributes attributes;
    while (!cursor->at(")")) {
      const Token at = cursor->peek();
      if (at.kind == TokenKind::identifier && cursor->peek(1).text == "=") {
        const std::string key(cursor->take().text);
        cursor->take();
        const AttributeInfo* a = info(*op).attribute(key);
        if (!a) {
          cursor->fail(diagnose_at(at.range, Code::unknown_attribute, *name, key));
          return std::nullopt;
        }
        auto v = attribute_value(*a);
        if (!v) return std::nullopt;
        attributes.set(key, std::move(*v));
      } else if (at.kind == TokenKind::string && info(*op).attribute("spec")) {
        const auto text = cursor->expect_string("a spec");
        if (!text) return std::nullopt;
        attributes.set("spec", *text);
      } else {
        const auto v = operand();
        if (!v) return std::nullopt;
        operands.push_back(*v);
      }
      if (!cursor->accept(",") && !cursor->at(")")) {
        cursor->fail_expected("`,` or `)`");
        return std::nullopt;
      }
    }
    cursor->take();
    cursor->leave();
    if (*op == Op::literal && attributes.has("value") && attributes.has("dtype") &&
        !fits(t, attributes.get<double>("value"), attributes.get<DType>("dtype")))
      return std::nullopt;
    auto results = builder.add(*op, std::move(operands), std::move(attributes));
    if (!results) {
      fail_at(t, results.errors());
      return std::nullopt;
    }
    return *results;
  }

  // assignment := NAME { "," NAME } "=" (call | NAME)
  void assignment() {
    std::vector<Token> names;
    do {
      names.push_back(cursor->peek());
      if (!cursor->expect_identifier("a statement")) return;
      assigned.push_back(std::string(names.back().text));
    } while (cursor->accept(","));
    if (!cursor->expect("=")) return;
    std::vector<ValueId> results;
    if (cursor->peek().kind == TokenKind::identifier && cursor->peek(1).text == "(") {
      const auto r = call();
      if (!r) return;
      results = *r;
    } else {
      const auto v = operand();
      if (!v) return;
      results = {*v};
    }
    if (results.size() != names.size())
      return cursor->fail(diagnose_at(names[0].range, Code::wrong_arity, "this assignment",
                                      fmt::format("{} names", results.size()), names.size()));
    for (size_t i = 0; i < names.size(); ++i)
      if (!define(names[i], std::string(names[i].text), results[i])) return;
  }

  // output := "output" (NAME | STRING) [ "=" operand ]
  void output() {
    const Token t = cursor->peek();
    const auto name = t.kind == TokenKind::string ? cursor->expect_string("a name")
                                                  : cursor->expect_identifier("the name of an output");
    if (!name) return;
    std::optional<ValueId> v;
    if (cursor->accept("=")) {
      v = operand();
    } else if (auto it = values.find(*name); it != values.end()) {
      v = it->second;
    } else {
      cursor->fail(diagnose_at(t.range, Code::undefined_name, *name));
    }
    if (!v) return;
    if (!output_names.insert(*name).second) return cursor->fail(diagnose_at(t.range, Code::duplicate_name, *name));
    builder.output(*name, *v);
  }

  void statement() {
    if (cursor->accept("dim"))
      dim();
    else if (cursor->accept("input"))
      leaf(Op::input);
    else if (cursor->accept("const"))
      leaf(Op::constant);
    else if (cursor->accept("scalar"))
      leaf(Op::scalar);
    else if (cursor->accept("output"))
      output();
    else
      assignment();
  }

  // An undefined name whose definition already failed is no news.
  bool is_consequence(const Diagnostic& d) const {
    return d.code == Code::undefined_name && poisoned.count(d.parameters.at(0));
  }

  // graph := "graph" (NAME | STRING) "{" { statement } "}"      one statement a line
  Result<Graph> run() {
    size_t at = 0;
    {
      TokenCursor head(tokens);
      cursor = &head;
      std::string name;
      if (head.expect("graph")) {
        if (head.peek().kind == TokenKind::string)
          name = *head.expect_string("a name");
        else if (auto n = head.expect_identifier("the name of the graph"))
          name = *n;
        head.expect("{");
      }
      if (head.failed()) return head.errors();
      builder = Builder(name);
      at = 3;
    }
    bool closed = false;
    while (at < tokens.size() && tokens[at].kind != TokenKind::end) {
      if (tokens[at].text == "}" && tokens[at].kind == TokenKind::punctuation) {
        closed = true;
        ++at;
        break;
      }
      // A statement is a line, or more while brackets are open.
      size_t stop = at + 1;
      int depth = 0;
      auto bracket = [&](const Token& t) {
        if (t.kind != TokenKind::punctuation) return;
        if (t.text == "(" || t.text == "[") ++depth;
        if (t.text == ")" || t.text == "]") --depth;
      };
      bracket(tokens[at]);
      while (stop < tokens.size() && tokens[stop].kind != TokenKind::end &&
             (depth > 0 || !tokens[stop].after_newline) && !(depth <= 0 && tokens[stop].text == "}")) {
        bracket(tokens[stop]);
        ++stop;
      }
      std::vector<Token> line(tokens.begin() + static_cast<long>(at), tokens.begin() + static_cast<long>(stop));
      Token end = tokens.back();
      end.range = {line.back().range.end, line.back().range.end};
      line.push_back(end);
      TokenCursor c(std::move(line));
      cursor = &c;
      assigned.clear();
      statement();
      if (!c.failed() && !c.at_end()) c.fail_expected("the end of the statement");
      for (const Diagnostic& d : c.errors())
        if (!is_consequence(d)) errors.push_back(d);
      if (c.failed()) poisoned.insert(assigned.begin(), assigned.end());
      if (errors.size() >= kMaxErrors) return errors;
      at = stop;
    }
    if (errors.empty() && !closed)
      errors.push_back(diagnose_at(tokens.back().range, Code::unexpected_token, "end of text", "`}`"));
    if (errors.empty() && tokens[at].kind != TokenKind::end)
      errors.push_back(diagnose_at(tokens[at].range, Code::unexpected_token,
                                   fmt::format("`{}`", tokens[at].text.substr(0, 40)), "end of text"));
    if (!errors.empty()) return errors;
    return builder.finish();
  }
};

}  // namespace

Result<Graph> parse(const SourceText& source, const LoadConstant& load) {
  TRY_ASSIGN(auto tokens, tokenize(source));
  return Parser{source, load, std::move(tokens)}.run();
}

}  // namespace cleave::graph
