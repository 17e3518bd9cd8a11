// Every rule of the table, on its own examples.
#include "algebra/rules.hpp"

#include "algebra/index_form.hpp"
#include "algebra/search.hpp"
#include "algebra/values.hpp"
#include "derivable.hpp"
#include "subgraphs.hpp"

namespace cleave::algebra {
namespace {

using graph::Graph;
using test::parsed;

const char* const kHead =
    "graph rule {\n  dim I in 1..64\n  dim K in 1..64\n  dim N in 1..64\n  dim R in 1..64\n  input A: f32[I, K]\n"
    "  input B: f32[I, K]\n  input C: f32[I, K]\n  input W: f32[K, N]\n  input U: f32[N, R]\n  input v: f32[K]\n"
    "  input M: bool[I, K]\n";

Graph body(const std::string& text) { return parsed(std::string(kHead) + "  " + text + "\n  output Y\n}"); }

// Float64 agreement at two draws of distinct extents.
bool same(const Graph& a, const Graph& b) {
  for (int64_t shift : {0, 2}) {
    const std::map<std::string, int64_t> dims{{"I", 5 + shift}, {"K", 6 + shift}, {"N", 7 + shift}, {"R", 8 + shift}};
    const Graph x = test::bound(a, dims), y = test::bound(b, dims);
    auto inputs = test::draw(x, 9 + static_cast<uint64_t>(shift));
    oracle::Tensor& m = inputs.at("M");
    for (int64_t i = 0; i < m.elements(); ++i) m.set(i, i % 3 != 1);
    const auto want = test::run(x, inputs), got = test::run(y, inputs);
    if (want.empty() || got.empty() || want[0].extents != got[0].extents) return false;
    if (!oracle::compare(got[0], want[0], 1e-9, 1e-9).ok()) return false;
  }
  return true;
}

// Both spellings as terms over the same leaves; one where they are the same term.
std::pair<Program, std::vector<TermId>> together(const std::string& left, const std::string& right) {
  auto renamed = [](std::string t, const char* to) {
    for (const char* name : {"Y", "G", "H", "Q"})
      for (size_t at = 0; (at = t.find(name, at)) != std::string::npos; at += 2)
        if ((at == 0 || !std::isalnum(static_cast<unsigned char>(t[at - 1]))) &&
            !std::isalnum(static_cast<unsigned char>(t[at + 1])))
          t.insert(at + 1, to);
    return t;
  };
  const Graph g = parsed(std::string(kHead) + "  " + renamed(left, "1") + "\n  " + renamed(right, "2") +
                         "\n  output Y1\n  output Y2\n}");
  Program p = read(g);
  std::vector<TermId> terms;
  for (const auto& o : g.outputs())
    for (const auto& s : p.steps)
      for (const Root& r : s.roots)
        if (r.value == o.value && (terms.empty() || terms[0] != r.term)) terms.push_back(r.term);
  return {std::move(p), std::move(terms)};
}

// Whether both are one class: the search knows that they are equal.
bool one_class(const std::string& left, const std::string& right) {
  const auto [p, terms] = together(left, right);
  if (terms.size() == 1) return true;
  if (terms.size() != 2) return false;  // a barrier stands between
  Normaliser normal(*p.form);
  Values values(normal, 5000);
  const ClassId a = values.add(terms[0]), b = values.add(terms[1]);
  values.saturate();
  values.test(1, 3);
  return values.find(a) == values.find(b);
}

// Whether the search, given `before` alone, has a way to compute it as `after` does, operator by operator.
bool derives(const std::string& before, const std::string& after) {
  const auto [p, terms] = together(before, after);
  if (terms.size() == 1) return true;
  if (terms.size() != 2) return false;
  Normaliser normal(*p.form);
  Values values(normal, 5000);
  values.add(terms[0]);
  values.saturate();
  values.test(1, 3);
  test::Derivation d(normal, values);
  return d.derivable(terms[1]);
}

TEST(Rules, EveryExampleHoldsAndEveryNearMissDoesNot) {
  std::set<std::string> names;
  for (const Rule& r : rules()) {
    EXPECT_TRUE(names.insert(r.name).second) << r.name;
    EXPECT_TRUE(same(body(r.before), body(r.after))) << r.name;
    EXPECT_FALSE(same(body(r.before), body(r.near))) << r.name;
    EXPECT_EQ(find_rule(r.name), &r);
  }
  EXPECT_EQ(find_rule("magic"), nullptr);
}

TEST(Rules, TheSearchKnowsTheExamplesAndRefusesTheNearMisses) {
  for (const Rule& r : rules()) {
    const bool labels = std::string(r.after).find("concat") != std::string::npos;
    if (labels) {  // sums of labels are made on whole graphs: one of the found graphs has them
      const auto found = search(body(r.before), {.keep = 64});
      ASSERT_TRUE(found.ok());
      EXPECT_TRUE(std::any_of(found->graphs.begin(), found->graphs.end(), [&](const Found& f) {
        return !f.derivation.empty() && f.derivation.back().rule == r.name;
      })) << r.name;
      for (const Found& f : found->graphs) EXPECT_TRUE(same(body(r.before), f.graph)) << r.name << print(f.graph);
      continue;
    }
    EXPECT_TRUE(one_class(r.before, r.after)) << r.name;
    EXPECT_TRUE(derives(r.before, r.after)) << r.name;
    EXPECT_FALSE(one_class(r.before, r.near)) << r.name;
  }
}

TEST(Rules, EveryStepOfEveryDerivationHasARule) {
  std::map<std::string, size_t> used;
  for (const SuiteRow& row : test::subgraphs()) {
    const Graph g = graph::expand(row.graph);
    for (const std::string& split : {std::string(), splittable_indices(g).at(0)}) {
      const auto r = search(g, {.split = split, .screen = false});
      ASSERT_TRUE(r.ok());
      for (const Found& f : r->graphs)
        for (const Derived& d : f.derivation) {
          ++used[d.rule];
          EXPECT_NE(find_rule(d.rule), nullptr) << d.rule;
        }
    }
  }
  EXPECT_GE(used.size(), 8u);
}

}  // namespace
}  // namespace cleave::algebra
