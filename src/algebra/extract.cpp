#include "algebra/extract.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/rng.hpp"

namespace cleave::algebra {

using graph::Op;

Extractor::Extractor(const Values& values, Normaliser& normal, std::function<bool(uint32_t)> constant,
                     ExtractOptions options)
    : values_(values), normal_(normal), constant_(std::move(constant)), options_(options) {
  for (const ValueClass& v : values.classes()) free_of_charge_.push_back(is_constant(v.poly));
}

bool Extractor::is_constant(PolyId p) {
  if (auto it = constants_.find(p); it != constants_.end()) return it->second;
  bool yes = true;
  const Poly poly = normal_.at(p);
  for (const Monomial& m : poly)
    for (const Factor& f : m.factors) {
      const Atom a = normal_.at(f.atom);
      if (a.kind == AtomKind::leaf) yes = yes && constant_(a.source);
      if (a.kind == AtomKind::extent) yes = yes && normal_.form().syms().as_constant(a.extent).has_value();
      for (PolyId q : a.args) yes = yes && is_constant(q);
    }
  return constants_[p] = yes;
}

double Extractor::elements(const Indices& indices, const Scenario& s) const {
  double n = 1;
  for (IndexId i : indices) n *= s.extents[normal_.form().at(i).label];
  return n;
}

// Arithmetic and exponentials as they count on real machines, and a little for every value that has a reduction in it.
double Extractor::cost(ClassId c, const Producer& p, const Scenario& s) const {
  const auto& classes = values_.classes();
  if (free_of_charge_[c] || p.term.valid()) return 0;
  const double out = elements(normal_.free(classes[c].poly), s);
  if (options_.split) {
    bool parts = false, part = false;
    for (IndexId i : p.bound) {
      parts = parts || normal_.form().at(i).label == options_.split->first;
      part = part || normal_.form().at(i).label == options_.split->second;
    }
    for (ClassId a : p.args)
      for (IndexId i : normal_.free(classes[a].poly))  // parts are put together last
        part = part || (parts && normal_.form().at(i).label == options_.split->second);
    if (parts && part) return kWholeReduction;
  }
  switch (p.kind) {
    case Kind::map:
      switch (p.op) {
        case Op::exp:
        case Op::log: return 8 * out;
        case Op::div:
        case Op::reciprocal:
        case Op::sqrt:
        case Op::rsqrt: return 4 * out;
        case Op::square:
        case Op::neg:
        case Op::cast: return 0.9 * out;
        default: return out;
      }
    case Kind::reduce: return elements(normal_.free(classes[p.args[0]].poly), s) + 2 * out;
    case Kind::contract: {
      const Indices all = unite(normal_.free(classes[p.args[0]].poly), normal_.free(classes[p.args[1]].poly));
      return 2 * elements(all, s) + 2 * out;
    }
    default: return 0;
  }
}

double Extractor::total(const Choice& c) const {
  double sum = 0;
  for (const auto& [value, k] : c.picks) sum += costs_[value][k];
  return sum;
}

bool Extractor::merge(const Choice& a, const Choice& b, Choice& out) {
  out.picks.clear();
  size_t i = 0, j = 0;
  while (i < a.picks.size() || j < b.picks.size()) {
    if (j == b.picks.size() || (i < a.picks.size() && a.picks[i].first < b.picks[j].first))
      out.picks.push_back(a.picks[i++]);
    else if (i == a.picks.size() || b.picks[j].first < a.picks[i].first)
      out.picks.push_back(b.picks[j++]);
    else {
      if (a.picks[i].second != b.picks[j].second) return false;
      out.picks.push_back(a.picks[i++]);
      ++j;
    }
  }
  return true;
}

std::vector<Choice> Extractor::combine(const std::vector<Choice>& a, const std::vector<Choice>& b) {
  std::vector<Choice> out;
  for (const Choice& x : a)
    for (const Choice& y : b) {
      Choice c;
      if (merge(x, y, c)) out.push_back(std::move(c));
    }
  return out;
}

const std::vector<Choice>& Extractor::best(ClassId c, const Scenario& s) {
  c = values_.find(c);
  if (auto it = known_.find(c); it != known_.end()) return it->second;
  static const std::vector<Choice> none;
  if (!open_.insert(c).second) return none;  // a cycle through joined classes
  std::vector<Choice> all;
  const auto& producers = values_.classes()[c].producers;
  for (uint32_t k = 0; k < producers.size(); ++k) {
    if (forced_ && forced_->first == c && forced_->second != k) continue;
    const Producer& p = producers[k];
    std::vector<Choice> list{{0, {}}};
    for (ClassId a : p.args) {
      list = combine(list, best(a, s));
      if (list.empty()) break;
    }
    for (Choice& choice : list) {
      const auto at = std::lower_bound(choice.picks.begin(), choice.picks.end(), std::pair(c, uint32_t{0}));
      if (at != choice.picks.end() && at->first == c) continue;  // needs itself
      choice.picks.insert(at, {c, k});
      choice.cost = total(choice);
      all.push_back(std::move(choice));
    }
  }
  std::sort(all.begin(), all.end(), [](const Choice& a, const Choice& b) {
    return std::pair(a.cost, a.picks.size()) < std::pair(b.cost, b.picks.size()) ||
           (a.cost == b.cost && a.picks.size() == b.picks.size() && a.picks < b.picks);
  });
  keep_one_of_each_shape(all);
  if (all.size() > options_.keep_inner) {
    // The best ones, and the best of every producer as far as there is room.
    std::vector<Choice> kept;
    std::set<uint32_t> seen;
    auto producer_of = [&](const Choice& x) {
      return std::lower_bound(x.picks.begin(), x.picks.end(), std::pair(c, uint32_t{0}))->second;
    };
    for (const Choice& x : all)
      if (kept.size() < options_.keep_inner &&
          (kept.size() < options_.keep_inner / 2 || !seen.contains(producer_of(x)))) {
        kept.push_back(x);
        seen.insert(producer_of(x));
      }
    for (const Choice& x : all)
      if (kept.size() < options_.keep_inner &&
          std::none_of(kept.begin(), kept.end(), [&](const Choice& y) { return x.picks == y.picks; }))
        kept.push_back(x);
    all = std::move(kept);
  }
  open_.erase(c);
  return known_[c] = std::move(all);
}

std::vector<std::pair<ClassId, uint32_t>> Extractor::shape_of(const Choice& choice) const {
  std::vector<std::pair<ClassId, uint32_t>> out;
  for (const auto& pick : choice.picks) {
    const Kind kind = values_.classes()[pick.first].producers[pick.second].kind;
    if (kind == Kind::contract || kind == Kind::reduce) out.push_back(pick);
  }
  return out;
}

void Extractor::keep_one_of_each_shape(std::vector<Choice>& sorted) const {
  std::set<std::vector<std::pair<ClassId, uint32_t>>> seen;
  std::erase_if(sorted, [&](const Choice& c) { return !seen.insert(shape_of(c)).second; });
}

std::vector<Extractor::Scenario> Extractor::scenarios() const {
  // No extent is looked at: one even scenario, and random ones.
  std::vector<Scenario> out;
  Rng rng(0x7363656e);
  for (int k = 0; k < (options_.split ? 1 : 4); ++k) {
    out.emplace_back();
    for (size_t l = 0; l < normal_.form().label_count(); ++l)
      out.back().extents.push_back(k == 0 ? 256 : std::vector<double>{4, 64, 512, 4096}[rng.below(4)]);
  }
  if (options_.split) {  // few long parts
    out[0].extents[options_.split->first] = 8;
    out[0].extents[options_.split->second] = 512;
  }
  return out;
}

std::vector<Choice> Extractor::best_together(const std::vector<ClassId>& roots, const Scenario& s, size_t keep) {
  known_.clear();
  costs_.clear();
  for (ClassId c = 0; c < values_.classes().size(); ++c) {
    costs_.emplace_back();
    for (const Producer& p : values_.classes()[c].producers) costs_.back().push_back(cost(c, p, s));
  }
  open_.clear();
  std::vector<Choice> all{{0, {}}};
  for (ClassId r : roots) {
    all = combine(all, best(r, s));
    for (Choice& c : all) c.cost = total(c);
    std::sort(all.begin(), all.end(),
              [](const Choice& a, const Choice& b) { return std::tie(a.cost, a.picks) < std::tie(b.cost, b.picks); });
    keep_one_of_each_shape(all);
    if (all.size() > keep) all.resize(keep);
  }
  return all;
}

std::vector<Choice> Extractor::run(const std::vector<ClassId>& roots) {
  std::vector<std::vector<Choice>> by_scenario;
  for (const Scenario& s : scenarios()) by_scenario.push_back(best_together(roots, s, options_.keep));
  std::vector<Choice> out;
  std::set<std::vector<std::pair<ClassId, uint32_t>>> seen;  // shapes: the first spelling is kept
  for (size_t rank = 0; rank < options_.keep; ++rank)
    for (auto& list : by_scenario)
      if (rank < list.size() && seen.insert(shape_of(list[rank])).second) out.push_back(std::move(list[rank]));
  return out;
}

std::vector<Choice> Extractor::diverse(const std::vector<ClassId>& roots, const std::vector<Choice>& known, size_t most,
                                       const std::function<bool()>& stop) {
  std::set<std::pair<ClassId, uint32_t>> seen;
  for (const Choice& c : known) seen.insert(c.picks.begin(), c.picks.end());
  std::vector<Choice> out;
  const Scenario even = scenarios().front();
  const size_t keep = std::exchange(options_.keep_inner, 1);
  const auto& classes = values_.classes();
  size_t tries = 0;
  for (ClassId c = 0; c < classes.size() && out.size() < most && tries < 4 * most; ++c) {
    if (values_.find(c) != c || free_of_charge_[c]) continue;
    for (uint32_t k = 0; k < classes[c].producers.size() && out.size() < most && tries < 4 * most; ++k) {
      if (stop()) break;
      const Producer& p = classes[c].producers[k];
      if ((p.kind != Kind::contract && p.kind != Kind::reduce) || seen.contains({c, k})) continue;
      ++tries;
      forced_ = std::pair(c, k);
      for (Choice& choice : best_together(roots, even, 1))
        if (std::binary_search(choice.picks.begin(), choice.picks.end(), std::pair(c, k))) {
          seen.insert(choice.picks.begin(), choice.picks.end());
          out.push_back(std::move(choice));
        }
    }
  }
  forced_.reset();
  options_.keep_inner = keep;
  return out;
}

uint32_t Extractor::pick_of(const Choice& choice, ClassId c) {
  const auto at = std::lower_bound(choice.picks.begin(), choice.picks.end(), std::pair(c, uint32_t{0}));
  CHECK(at != choice.picks.end() && at->first == c, "a choice without a producer for a class");
  return at->second;
}

std::vector<TermId> Extractor::build(const Values& values, const std::vector<ClassId>& roots, Form& form,
                                     const std::function<uint32_t(ClassId)>& pick) {
  std::map<ClassId, TermId> made;  // an invalid term: under way
  std::function<TermId(ClassId)> visit = [&](ClassId c) -> TermId {
    c = values.find(c);
    if (auto it = made.find(c); it != made.end()) return it->second;
    made[c] = {};
    const Producer& p = values.classes()[c].producers[pick(c)];
    std::vector<TermId> args;
    for (ClassId a : p.args) {
      args.push_back(visit(a));
      if (!args.back().valid()) return {};
    }
    TermId t = p.term;
    if (!t.valid()) switch (p.kind) {
        case Kind::map:
          t = p.op == Op::cast ? form.cast(args[0], p.to, values.classes()[c].dtype) : form.map(p.op, args);
          break;
        case Kind::reduce: t = form.reduce(p.op, p.bound, args[0], p.result); break;
        case Kind::contract: t = form.contract(p.bound, args[0], args[1]); break;
        default: CHECK(false, "a producer of kind {}", static_cast<int>(p.kind));
      }
    return made[c] = t;
  };
  std::vector<TermId> out;
  for (ClassId r : roots) out.push_back(visit(r));
  return out;
}

}  // namespace cleave::algebra
