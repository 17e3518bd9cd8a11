#include "algebra/extract.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/rng.hpp"

namespace cleave::algebra {

using graph::Op;

Extractor::Extractor(const Values& values, Normaliser& normal, std::function<bool(uint32_t)> constant,
                     ExtractOptions options)
    : values_(values), normal_(normal), constant_(std::move(constant)), options_(options) {
  const auto& classes = values.classes();
  users_.resize(classes.size());
  for (ClassId c = 0; c < classes.size(); ++c) {
    free_of_charge_.push_back(is_constant(classes[c].poly));
    shapes_.emplace_back();
    for (uint32_t k = 0; k < classes[c].producers.size(); ++k) {
      const Producer& p = classes[c].producers[k];
      shapes_[c].push_back(p.kind == Kind::contract || p.kind == Kind::reduce ? mix(c, k) : 0);
      for (ClassId a : p.args) users_[values.find(a)].push_back(c);
    }
  }
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
  if (free_of_charge_[c] || p.term.valid() || p.is_view()) return 0;
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
        case Op::quot0:
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

uint64_t Extractor::shape_of(std::span<const Pick> picks) const {
  uint64_t sum = 0;
  for (const auto& [c, k] : picks) sum += shapes_[c][k];
  return sum;
}

// Each draft from `first` on with each choice of `by` that agrees with it and does not need the class `without`.
void Extractor::extend(Drafts& drafts, size_t first, const std::vector<Choice>& by, ClassId without) const {
  std::vector<Draft> out;
  std::vector<Pick>& picks = drafts.picks;
  for (size_t n = first; n < drafts.list.size(); ++n)
    for (const Choice& y : by) {
      const Draft x = drafts.list[n];
      Draft d{0, 0, picks.size(), 0};
      picks.resize(d.begin + x.size + y.picks.size());
      const Pick *i = picks.data() + x.begin, *const end_i = i + x.size;
      const Pick *j = y.picks.data(), *const end_j = j + y.picks.size();
      Pick* to = picks.data() + d.begin;
      bool agree = true;
      while (agree && i != end_i && j != end_j) {
        if (j->first < i->first) {
          *to++ = *j++;
          continue;
        }
        if (i->first == j->first) {
          agree = i->second == j->second && i->first != without;
          ++j;
        }
        *to++ = *i++;
      }
      if (agree) {
        to = std::copy(j, end_j, std::copy(i, end_i, to));
        d.size = static_cast<size_t>(to - (picks.data() + d.begin));
        out.push_back(d);
      }
      picks.resize(d.begin + d.size);
    }
  drafts.list.resize(first);
  drafts.list.insert(drafts.list.end(), out.begin(), out.end());
}

// Weighs the drafts; then the cheapest come first, and one spelling of each shape stays.
void Extractor::sort_and_keep_one_of_each_shape(Drafts& drafts) const {
  for (Draft& d : drafts.list) {
    d.cost = 0;
    for (const auto& [c, k] : drafts.of(d)) d.cost += costs_[c][k];
    d.shape = shape_of(drafts.of(d));
  }
  std::sort(drafts.list.begin(), drafts.list.end(), [&](const Draft& a, const Draft& b) {
    if (a.cost != b.cost) return a.cost < b.cost;
    if (a.size != b.size) return a.size < b.size;
    return std::ranges::lexicographical_compare(drafts.of(a), drafts.of(b));
  });
  std::unordered_set<uint64_t> seen;
  std::erase_if(drafts.list, [&](const Draft& d) { return !seen.insert(d.shape).second; });
}

// The best ones, and the best of every producer as far as there is room.
std::vector<Extractor::Draft> Extractor::best_of_each_producer(const Drafts& drafts, ClassId c) const {
  std::vector<Draft> kept;
  std::vector<bool> taken(drafts.list.size());
  std::set<uint32_t> seen;
  const auto take = [&](auto&& wanted) {
    for (size_t n = 0; n < drafts.list.size() && kept.size() < options_.keep_inner; ++n) {
      if (taken[n]) continue;
      const auto picks = drafts.of(drafts.list[n]);
      const uint32_t producer = std::ranges::lower_bound(picks, Pick(c, 0))->second;
      if (!wanted(producer)) continue;
      kept.push_back(drafts.list[n]);
      taken[n] = true;
      seen.insert(producer);
    }
  };
  take([&](uint32_t producer) { return kept.size() < options_.keep_inner / 2 || !seen.contains(producer); });
  take([](uint32_t) { return true; });
  return kept;
}

const std::vector<Choice>& Extractor::best(ClassId c) {
  c = values_.find(c);
  if (known_[c]) return *known_[c];
  static const std::vector<Choice> none;
  if (open_[c]) return none;  // a cycle through joined classes
  open_[c] = true;
  Drafts drafts;
  const auto& producers = values_.classes()[c].producers;
  for (uint32_t k = 0; k < producers.size(); ++k) {
    if (forced_ && forced_->first == c && forced_->second != k) continue;
    const size_t first = drafts.list.size();
    drafts.list.push_back({0, 0, drafts.picks.size(), 1});
    drafts.picks.emplace_back(c, k);
    for (ClassId a : producers[k].args) extend(drafts, first, best(a), c);
  }
  sort_and_keep_one_of_each_shape(drafts);
  if (drafts.list.size() > options_.keep_inner) drafts.list = best_of_each_producer(drafts, c);
  open_[c] = false;
  known_[c].emplace();
  for (const Draft& d : drafts.list) {
    const auto picks = drafts.of(d);
    known_[c]->push_back({d.cost, {picks.begin(), picks.end()}});
  }
  return *known_[c];
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

void Extractor::begin(const Scenario& s) {
  const auto& classes = values_.classes();
  known_.assign(classes.size(), std::nullopt);
  open_.assign(classes.size(), false);
  costs_.clear();
  for (ClassId c = 0; c < classes.size(); ++c) {
    costs_.emplace_back();
    for (const Producer& p : classes[c].producers) costs_.back().push_back(cost(c, p, s));
  }
}

std::vector<Choice> Extractor::best_together(const std::vector<ClassId>& roots, size_t keep) {
  Drafts drafts;
  drafts.list.emplace_back();
  for (ClassId r : roots) {
    extend(drafts, 0, best(r), kNoClass);
    sort_and_keep_one_of_each_shape(drafts);
    if (drafts.list.size() > keep) drafts.list.resize(keep);
  }
  std::vector<Choice> out;
  for (const Draft& d : drafts.list) out.push_back({d.cost, {drafts.of(d).begin(), drafts.of(d).end()}});
  return out;
}

std::vector<Choice> Extractor::run(const std::vector<ClassId>& roots) {
  std::vector<std::vector<Choice>> by_scenario;
  for (const Scenario& s : scenarios()) {
    begin(s);
    by_scenario.push_back(best_together(roots, options_.keep));
  }
  std::vector<Choice> out;
  std::unordered_set<uint64_t> seen;  // shapes: the first spelling is kept
  for (size_t rank = 0; rank < options_.keep; ++rank)
    for (auto& list : by_scenario)
      if (rank < list.size() && seen.insert(shape_of(list[rank].picks)).second) out.push_back(std::move(list[rank]));
  return out;
}

std::vector<ClassId> Extractor::with_users(ClassId c) const {
  std::vector<ClassId> out{c};
  std::vector<bool> seen(users_.size());
  seen[c] = true;
  for (size_t n = 0; n < out.size(); ++n)
    for (ClassId user : users_[out[n]])
      if (const ClassId u = values_.find(user); !seen[u]) {
        seen[u] = true;
        out.push_back(u);
      }
  return out;
}

std::vector<Choice> Extractor::diverse(const std::vector<ClassId>& roots, const std::vector<Choice>& known, size_t most,
                                       const std::function<bool()>& stop) {
  std::set<Pick> seen;
  for (const Choice& c : known) seen.insert(c.picks.begin(), c.picks.end());
  std::vector<Choice> out;
  const size_t keep = std::exchange(options_.keep_inner, 1);
  const auto& classes = values_.classes();
  begin(scenarios().front());
  best_together(roots, 1);
  size_t tries = 0;
  for (ClassId c = 0; c < classes.size() && out.size() < most && tries < 4 * most; ++c) {
    if (values_.find(c) != c || free_of_charge_[c]) continue;
    const std::vector<ClassId> touched = with_users(c);
    for (uint32_t k = 0; k < classes[c].producers.size() && out.size() < most && tries < 4 * most; ++k) {
      if (stop()) break;
      if (shapes_[c][k] == 0 || seen.contains({c, k})) continue;
      ++tries;
      forced_ = Pick(c, k);
      // Only what hangs on the class is another choice than without the force.
      std::vector<std::optional<std::vector<Choice>>> before;
      for (ClassId u : touched) before.push_back(std::exchange(known_[u], std::nullopt));
      for (Choice& choice : best_together(roots, 1))
        if (std::ranges::binary_search(choice.picks, *forced_)) {
          seen.insert(choice.picks.begin(), choice.picks.end());
          out.push_back(std::move(choice));
        }
      for (size_t n = 0; n < touched.size(); ++n) known_[touched[n]] = std::move(before[n]);
    }
  }
  forced_.reset();
  options_.keep_inner = keep;
  return out;
}

std::optional<Choice> Extractor::given_in_parts(const std::vector<ClassId>& roots) {
  begin(scenarios().front());
  const auto& classes = values_.classes();
  std::map<ClassId, uint32_t> picks;
  std::set<ClassId> open;
  const std::function<bool(ClassId)> visit = [&](ClassId c) {
    c = values_.find(c);
    if (picks.contains(c)) return true;
    if (!open.insert(c).second) return false;
    const auto& list = classes[c].producers;
    const auto rank = [](const Producer& p) { return p.given ? 0 : p.rule == kTwoSteps ? 1 : 2; };
    for (int wanted : {0, 1, 2})
      for (uint32_t k = 0; k < list.size(); ++k) {
        if (rank(list[k]) != wanted || costs_[c][k] >= kWholeReduction) continue;
        if (!std::all_of(list[k].args.begin(), list[k].args.end(), visit)) continue;
        open.erase(c);
        picks[c] = k;
        return true;
      }
    open.erase(c);
    return false;
  };
  if (!std::all_of(roots.begin(), roots.end(), visit)) return std::nullopt;
  // Those that an attempt left behind are not needed.
  Choice out{0, {}};
  std::set<ClassId> needed;
  const std::function<void(ClassId)> need = [&](ClassId c) {
    c = values_.find(c);
    if (!needed.insert(c).second) return;
    for (ClassId a : classes[c].producers[picks.at(c)].args) need(a);
  };
  for (ClassId r : roots) need(r);
  for (ClassId c : needed) {
    out.picks.emplace_back(c, picks.at(c));
    out.cost += costs_[c][picks.at(c)];
  }
  return out;
}

uint32_t Extractor::pick_of(const Choice& choice, ClassId c) {
  const auto at = std::ranges::lower_bound(choice.picks, Pick(c, 0));
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
    TermId t = p.is_view() ? form.rename(args[0], p.renamed) : p.term;
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
