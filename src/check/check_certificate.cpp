#include "check/check_certificate.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <span>

#include "base/codes.hpp"
#include "base/digest.hpp"
#include "base/rng.hpp"
#include "check/exact.hpp"
#include "eval/bounds.hpp"
#include "eval/graph_eval.hpp"

namespace cleave::check {

using graph::Graph;
using graph::ValueId;

namespace {

constexpr int64_t kExactElements = 1 << 20;  // elements and products; larger graphs are left to float64

std::string shape_difference(const Graph& a, const Graph& b) {
  auto describe = [](const Graph& g) {
    std::vector<std::string> out;
    for (ValueId v : g.leaves())
      out.push_back(fmt::format("{} {}: {}", info(g.producer(v).op).name, g.value(v).name, print(g.syms(), g.type(v))));
    for (const auto& o : g.outputs())
      out.push_back(fmt::format("output {}: {}", o.name, print(g.syms(), g.type(o.value))));
    return out;
  };
  const auto x = describe(a), y = describe(b);
  for (size_t i = 0; i < std::max(x.size(), y.size()); ++i)
    if (i >= x.size() || i >= y.size() || x[i] != y[i])
      return fmt::format("it has `{}` where the graph before has `{}`", i < y.size() ? y[i] : "nothing",
                         i < x.size() ? x[i] : "nothing");
  return "";
}

// Distinct small extents for the dims, within their ranges.
std::map<std::string, int64_t> extents_for(const Graph& g, Rng& rng) {
  std::vector<int64_t> choices{5, 6, 7, 8, 9, 10, 11};
  std::map<std::string, int64_t> out;
  for (sym::Expr d : g.dims()) {
    if (choices.empty()) choices = {3, 4, 12, 13};
    const size_t k = rng.below(choices.size());
    const auto range = g.syms().symbol_range(d);
    out[g.syms().symbol_name(d)] = std::clamp(choices[k], range.lo, range.hi);
    choices.erase(choices.begin() + static_cast<long>(k));
  }
  return out;
}

// Where a text stops being JSON: the steps that began before, and whether the last one ended.
class Progress : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(std::string& name) override {
    if (depth_ == 1) steps_ = name == "steps";
    return true;
  }
  bool start_object(size_t) override {
    if (++depth_ == 3 && steps_) ++begun_;
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(size_t) override { return ++depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override { return false; }
  std::string where() const {
    return begun_ == 0 ? "before its first step" : fmt::format("{} step {}", depth_ >= 3 ? "in" : "after", begun_);
  }

 private:
  size_t depth_ = 0, begun_ = 0;
  bool steps_ = false;
};

// What a certificate and a step of it may say, and in which form.
using Form = bool (*)(const nlohmann::json&);
bool text(const nlohmann::json& j) { return j.is_string(); }
bool count(const nlohmann::json& j) { return j.is_number_unsigned(); }
bool list(const nlohmann::json& j) { return j.is_array(); }
bool anything(const nlohmann::json&) { return true; }  // digests are compared
bool texts(const nlohmann::json& j) { return j.is_object() && std::all_of(j.begin(), j.end(), text); }
struct Member {
  const char* name;
  Form form;
  bool required = false;
};
constexpr Member kMembers[] = {{"schema", text, true}, {"graph", text},        {"seed", count},
                               {"draws", count},       {"assumptions", texts}, {"policies", texts},
                               {"input", text, true},  {"steps", list, true},  {"result", text, true},
                               {"digest", anything}};
constexpr Member kStepMembers[] = {{"rule", text},  {"value", text}, {"before", text},
                                   {"after", text}, {"graph", text}, {"digest", anything}};

// What is wrong with the members of an object; empty: nothing.
std::string misfit(const nlohmann::json& object, std::span<const Member> members) {
  if (!object.is_object()) return "it is no object";
  for (const Member& m : members)
    if (m.required && !object.contains(m.name)) return fmt::format("`{}` is missing", m.name);
  for (const auto& [name, value] : object.items()) {
    const auto m = std::find_if(members.begin(), members.end(), [&](const Member& x) { return x.name == name; });
    if (m == members.end()) return fmt::format("it has a member `{}` that has no meaning", name);
    if (!m->form(value)) return fmt::format("`{}` is {}, which it cannot be", name, value.dump().substr(0, 40));
  }
  return "";
}

// The text as JSON; `repeated` is a name that stands twice in one object, where readers differ in which one counts.
nlohmann::json read_json(std::string_view source, std::optional<std::string>* repeated) {
  std::vector<std::set<std::string>> open;
  using Event = nlohmann::json::parse_event_t;
  return nlohmann::json::parse(
      source,
      [&](int, Event event, nlohmann::json& parsed) {
        if (event == Event::object_start) open.emplace_back();
        if (event == Event::object_end) open.pop_back();
        if (event == Event::key && !open.back().insert(parsed.get<std::string>()).second)
          *repeated = parsed.get<std::string>();
        return true;
      },
      false);
}

// Whether a cast loses digits.
bool narrows(const Graph& g) {
  for (graph::NodeId id : g.node_ids()) {
    const graph::Node& n = g.node(id);
    if (n.op != graph::Op::cast) continue;
    const DType from = g.type(n.operands[0]).dtype, to = g.type(n.results[0]).dtype;
    if (is_real(from) && is_real(to) && byte_size(to) <= byte_size(from) && to != from) return true;
  }
  return false;
}

// Whether all reals that an output hangs on are f64.
bool in_f64_only(const Graph& g, size_t output) {
  std::vector<ValueId> open{g.outputs()[output].value};
  std::vector<bool> seen(g.value_count());
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    if (seen[v.index]) continue;
    seen[v.index] = true;
    if (const DType d = g.type(v).dtype; is_real(d) && d != DType::f64) return false;
    const auto& operands = g.producer(v).operands;
    open.insert(open.end(), operands.begin(), operands.end());
  }
  return true;
}

struct Outcome {
  std::string difference;  // empty: none
  bool overflow = false;   // numbers on one side stand against infinities or NaN on the other
  bool left_out = false;   // there are elements that say nothing on this data
  bool silent = false;     // there is an output that says nothing at all
};

// Integers up to the ends of their types say whether arithmetic wraps where it did. Where elements are picked by number
// these are numbers that there are, and stay small.
bool takes_any_integer(const Graph& g) {
  for (graph::NodeId n : g.node_ids())
    if (graph::info(g.node(n).op).category == graph::Category::gather) return false;
  const auto given = oracle::given_leaves(g);
  return std::any_of(given.begin(), given.end(), [&](ValueId v) { return is_integer(g.type(v).dtype); });
}

// Numbers of one magnitude. `even`: none is smaller than half of it, so that quotients are of one magnitude too.
// `positive`: as logarithms and roots want them. `bits`: half of the inputs are zeros and ones, as masks are.
struct Data {
  double scale = 1;
  bool even = false, any_integer = false, positive = false, bits = false;
  double draw(Rng& rng) const {
    const double x = even ? scale * (0.5 + 0.5 * rng.uniform()) * (rng.chance(0.5) ? 1 : -1) : scale * rng.normal();
    return positive ? std::abs(x) : x;
  }
};

std::map<std::string, oracle::Tensor> random_inputs(const Graph& g, const Data& data, Rng& rng) {
  std::map<std::string, oracle::Tensor> out;
  for (ValueId v : oracle::given_leaves(g)) {
    oracle::Tensor t = oracle::zeros(g.type(v).dtype, g.extents(v));
    const bool wide = data.any_integer && is_integer(t.dtype), bits = data.bits && rng.chance(0.5);
    const int64_t most = int64_t{1} << 52;
    const int64_t lo = wide ? std::max(least_integer(t.dtype), -most) : 0;
    const int64_t hi = wide ? std::min(greatest_integer(t.dtype), most) : t.dtype == DType::boolean ? 1 : 2;
    for (int64_t i = 0; i < t.elements(); ++i)
      t.set(i, !t.real() ? static_cast<double>(rng.between(lo, hi))
               : bits    ? static_cast<double>(rng.chance(0.75))
                         : round_to(t.dtype, data.draw(rng)));
    out.emplace(g.value(v).name, std::move(t));
  }
  return out;
}

// Whether an exponential of a number is no number in float64, or 0.
bool overflows(const Graph& graph, const std::map<std::string, oracle::Tensor>& inputs, const oracle::EvalOptions& e) {
  const auto exponent = [](const Graph& g, graph::NodeId id) -> std::optional<ValueId> {
    const graph::Node& n = g.node(id);
    switch (n.op) {
      case graph::Op::exp:
      case graph::Op::exp2:
      case graph::Op::expm1: return n.operands[0];
      case graph::Op::unscale: return n.operands[1];
      default: return std::nullopt;
    }
  };
  const Graph named = graph::rewrite(
      graph,
      [&](graph::Builder& b, graph::NodeId id, std::span<const ValueId> mapped) -> std::optional<std::vector<ValueId>> {
        if (exponent(graph, id)) b.set_name(mapped.back(), fmt::format("exponent {}", id.index));
        return std::nullopt;
      });
  const auto ordered = oracle::in_leaf_order(named, inputs);
  if (!ordered.ok()) return false;
  const auto values = oracle::evaluate_named_values(named, *ordered, e);
  if (!values.ok()) return false;
  for (graph::NodeId id : named.node_ids())
    if (const auto v = exponent(named, id)) {
      const oracle::Tensor& t = values->at(named.value(*v).name);
      for (int64_t i = 0; i < t.elements(); ++i)
        if (std::isfinite(t.at(i)) && std::fabs(t.at(i)) > 700) return true;
    }
  return false;
}

// Where everything cancels, as in x - x, two ways to compute 0 differ by what float64 rounds on them: no more than the
// derived bounds, in the units of float64. What hangs on a comparison of such values says nothing.
bool all_rounding(const Graph& x, const Graph& y, const std::map<std::string, oracle::Tensor>& inputs, size_t output,
                  const oracle::Tensor& got, const oracle::Tensor& want) {
  // The bounds of f64 graphs are in its units; those of others in units of 2^-24, with room for constants.
  const double units = in_f64_only(x, output) && in_f64_only(y, output) ? 4 : 0x1p-26;
  std::vector<double> allowed(static_cast<size_t>(want.elements()));
  for (const Graph* g : {&x, &y}) {
    const auto ordered = oracle::in_leaf_order(*g, inputs);
    if (!ordered.ok()) return false;
    const auto bounded = oracle::evaluate_with_bounds(*g, *ordered);
    if (!bounded.ok()) return false;
    for (size_t i = 0; i < allowed.size(); ++i) {
      const double bound = (*bounded)[output].bound.at(i);
      if (std::isfinite(bound) || g == &x) allowed[i] += want.real() || !std::isfinite(bound) ? units * bound : 0;
    }
  }
  return oracle::compare(got, want, allowed).ok();
}

// Two graphs with bound extents on data of one magnitude. Elements that are NaN in `given`, the graph that all began
// with, say nothing, nor do those that are infinite in one and NaN in the other: inf - inf is a matter of association.
Outcome compare_on(const Graph& x, const Graph& y, const Graph* given, const Data& data, Rng& rng,
                   const CheckOptions& options, size_t* evaluations) {
  const auto inputs = random_inputs(x, data, rng);
  bool left_out = false, silent = false;
  // Equal as functions of reals: double rounding, with room for what cancels, 2^-40 of the largest element. With casts
  // that round, where there are any, the two agree roughly: rounding may have moved but not gone, if it is the point.
  struct Judgement {
    bool round_casts;
    double relative, of_largest;
  };
  std::vector<Judgement> judgements = {{false, 1e-8, 0x1p-40}};
  if (data.scale >= 1 && (narrows(x) || narrows(y))) judgements.push_back({true, 0, 0.125});
  for (const Judgement& j : judgements) {
    oracle::EvalOptions e;
    e.max_elements = options.max_elements;
    e.round_casts = j.round_casts;
    auto want = oracle::evaluate(x, inputs, e), got = oracle::evaluate(y, inputs, e);
    if (!want.ok()) return {"the graph before cannot be evaluated: " + want.errors()[0].message()};
    if (!got.ok()) return {"the graph cannot be evaluated: " + got.errors()[0].message()};
    if (evaluations) *evaluations += 2;
    std::optional<std::vector<oracle::Tensor>> first;
    if (given && given != &x) {
      auto r = oracle::evaluate(*given, inputs, e);
      if (!r.ok()) return {"the input graph cannot be evaluated: " + r.errors()[0].message()};
      first = std::move(*r);
    }
    for (size_t o = 0; o < want->size(); ++o) {
      int64_t said = 0;
      for (int64_t i = 0; i < (*want)[o].elements(); ++i) {
        const double w = (*want)[o].at(i), g = (*got)[o].at(i);
        // (A number that is 0 for once may be divided by.)
        const bool undefined = (given && std::isnan(first ? (*first)[o].at(i) : w)) ||
                               (data.bits && !(std::isfinite(w) && std::isfinite(g)));
        const bool either = !std::isfinite(w) && !std::isfinite(g) && std::isnan(w) != std::isnan(g);
        said += std::isfinite(w) || std::isfinite(g);
        if (!undefined && !either) continue;
        said -= std::isfinite(w) || std::isfinite(g);
        (*want)[o].set(i, 0);
        (*got)[o].set(i, 0);
        left_out = true;
      }
      silent = silent || (said == 0 && (*want)[o].elements() > 0);
    }
    for (size_t o = 0; o < want->size(); ++o) {
      double largest = 0;
      bool overflow = false;
      for (int64_t i = 0; i < (*want)[o].elements(); ++i) {
        const double w = (*want)[o].at(i);
        if (std::isfinite(w)) largest = std::max(largest, std::abs(w));
        overflow = overflow || std::isfinite(w) != std::isfinite((*got)[o].at(i));
      }
      // What rounds to 16 bits may underflow: the least number of f16.
      const double least = j.round_casts ? 0x1p-24 : 0;
      const auto d = oracle::compare((*got)[o], (*want)[o], j.relative, j.of_largest * largest + least);
      if (d.ok() || (!overflow && all_rounding(x, y, inputs, o, (*got)[o], (*want)[o]))) continue;
      // (Integers and bools do not show the infinity that they were made of.)
      const bool perhaps = overflow || !(*want)[o].real();
      overflow = (overflow && j.round_casts) || (perhaps && (overflows(x, inputs, e) || overflows(y, inputs, e)));
      return {fmt::format("output `{}` differs: {}", x.outputs()[o].name, d.text), overflow, left_out, silent};
    }
  }
  return {"", false, left_out, silent};
}

}  // namespace

namespace {

// With `given`: a step on the way from there.
Outcome difference_in(const Graph& a, const Graph& b, const Graph* given, const CheckOptions& options,
                      size_t* evaluations) {
  if (Diagnostics bad = verify(b); !bad.empty()) return {"the graph breaks a law: " + bad[0].message()};
  if (const std::string why = shape_difference(a, b); !why.empty()) return {why};
  Rng rng(options.seed);
  for (int draw = 0; draw < options.draws; ++draw) {
    const auto dims = extents_for(a, rng);
    const auto x = graph::bind(a, dims), y = graph::bind(b, dims);
    if (!x.ok()) return {"the extents do not fit: " + x.errors()[0].message()};
    if (!y.ok()) return {"the extents do not fit: " + y.errors()[0].message()};
    std::optional<Graph> first;
    if (given && given != &a) {
      auto r = graph::bind(*given, dims);
      if (!r.ok()) return {"the extents do not fit: " + r.errors()[0].message()};
      first = std::move(*r);
    }
    // Small data shows what large data hides (an epsilon), and the other way round. Where an exponential overflows on
    // the way between two stable forms, or the input graph is NaN, other data decides as well: smaller, or larger where
    // it stands under a root or a fraction, or without small numbers among large ones.
    const double scale = draw % 3 == 0 ? 1 : draw % 3 == 1 ? 1e-5 : 4;
    Outcome outcome;
    const Graph* start = first ? &*first : given ? &*x : nullptr;
    // A quotient of small numbers is large on any data but even one of magnitude 1.
    bool agreed = false;
    for (const Data& data : {Data{scale}, Data{scale / 2}, Data{scale / 8}, Data{scale / 32}, Data{scale * 8},
                             Data{scale * 32}, Data{1, true}, Data{1.0 / 32, true}, Data{1e-10}, Data{1e-20}}) {
      if (agreed && data.scale < 1e-9) break;
      outcome = compare_on(*x, *y, start, data, rng, options, evaluations);
      const bool agree = outcome.difference.empty() && !outcome.silent;
      agreed = agreed || agree;
      if (agree ? !outcome.left_out || data.scale < scale : !outcome.overflow && !outcome.silent) break;
    }
    // What logarithms and roots take, masks that are numbers, and all integers.
    std::vector<Data> others;
    if (draw < 2) others = {Data{1, true, false, true}, Data{1, false, false, false, true}};
    if (draw < 2 && takes_any_integer(*x)) others.push_back({1, true, true});
    for (const Data& data : others) {
      if (!outcome.difference.empty()) break;
      Outcome other = compare_on(*x, *y, start, data, rng, options, evaluations);
      if (!other.overflow) outcome = std::move(other);
    }
    // What is off by less than float64 can tell is off in exact arithmetic, which also decides alone where a step on
    // the way overflows whatever the data (exp(x + 1000) / exp(1000)).
    const Exact exact =
        compare_exactly(x.value(), y.value(), rng.next(), std::min(options.max_elements, kExactElements));
    if (exact == Exact::different) return {"exact arithmetic modulo random primes gives other outputs"};
    if (exact == Exact::equal && outcome.overflow) continue;
    if (!outcome.difference.empty()) return outcome;
  }
  return {};
}

}  // namespace

std::string difference(const Graph& a, const Graph& b, const CheckOptions& options, size_t* evaluations) {
  return difference_in(a, b, nullptr, options, evaluations).difference;
}

Result<CheckReport> check_certificate(std::string_view source, const CheckOptions& options) {
  std::optional<std::string> repeated;
  const auto j = read_json(source, &repeated);
  if (j.is_discarded()) {
    Progress progress;
    nlohmann::json::sax_parse(source, &progress);
    return diagnose(Code::certificate_unreadable,
                    fmt::format("{} it is no JSON (perhaps it was cut short)", progress.where()));
  }
  if (repeated)
    return diagnose(Code::certificate_unreadable, fmt::format("`{}` stands twice in one object", *repeated));
  if (!j.is_object() || j.value("schema", nlohmann::json()) != "cleave.certificate/2")
    return diagnose(Code::certificate_unreadable, "its schema is not cleave.certificate/2");
  if (const std::string why = misfit(j, kMembers); !why.empty()) return diagnose(Code::certificate_unreadable, why);
  auto read = [](std::string name, const nlohmann::json& source) {
    return graph::parse(SourceText{std::move(name), source.get<std::string>()});
  };
  auto input = read("input", j["input"]);
  if (!input.ok()) return diagnose(Code::certificate_unreadable, "input: " + input.errors()[0].message());
  size_t evaluations = 0, number = 0;
  Graph before = input.value();
  // The last graph is judged beside the input graph as well, as thoroughly as here where the one before it overflows.
  int last_draws = 1;
  auto compare = [&](const std::string& rule, Result<Graph> after, bool last) -> std::optional<Diagnostic> {
    ++number;
    if (!after.ok())
      return diagnose(Code::certificate_refused, number, rule,
                      "its graph cannot be read: " + after.errors()[0].message());
    CheckOptions own = options;
    own.seed += number;
    const Graph* given = number == 1 ? &before : &*input;
    const Outcome outcome = difference_in(before, *after, given, own, &evaluations);
    if (last && outcome.overflow)
      last_draws = options.draws;
    else if (!outcome.difference.empty())
      return diagnose(Code::certificate_refused, number, rule, outcome.difference);
    before = std::move(after).value();
    return std::nullopt;
  };
  // The digests say whether this is what was written; the graphs, whether that holds. The latter says more.
  Digest digest;
  auto sealed = [&](nlohmann::json object, const nlohmann::json& seal,
                    const std::string& rule) -> std::optional<Diagnostic> {
    digest.add(object.dump());
    if (seal.is_string() && seal == digest.hex()) return std::nullopt;
    return diagnose(Code::certificate_refused, number, rule,
                    "its digest is another: it or something before it was changed, left out or added");
  };
  nlohmann::json head = j;
  for (const char* key : {"steps", "result", "digest"}) head.erase(key);
  digest.add(head.dump());
  for (const auto& step : j["steps"]) {
    const std::string why = misfit(step, kStepMembers);
    const std::string rule = step.is_object() && text(step.value("rule", nlohmann::json())) ? step["rule"] : "?";
    if (!why.empty()) return diagnose(Code::certificate_refused, number + 1, rule, why);
    // A step may leave out its graph only where a later one has it; then the two are judged together.
    if (!step.contains("graph")) {
      ++number;
    } else if (auto bad = compare(rule, read(rule, step["graph"]), false)) {
      return *bad;
    }
    nlohmann::json own = step;
    own.erase("digest");
    if (auto bad = sealed(own, step.value("digest", nlohmann::json()), rule)) return *bad;
  }
  if (auto bad = compare("stabilise", read("result", j["result"]), true)) return *bad;
  // On the way, what is NaN in the input graph may be anything; in the end it may not be a number.
  CheckOptions own = options;
  own.draws = last_draws;
  if (const std::string why = difference(*input, before, own, &evaluations); !why.empty())
    return diagnose(Code::certificate_refused, number, "stabilise", "beside the input graph, " + why);
  if (auto bad = sealed(j["result"], j.value("digest", nlohmann::json()), "stabilise")) return *bad;
  return CheckReport{number - 1, evaluations, std::move(input).value(), std::move(before)};
}

}  // namespace cleave::check
