// What is written before it is read: in the same iteration of the loops around both, or in an earlier one.
#include <algorithm>

#include "leir/analysis.hpp"

namespace cleave::leir {

using sym::Interval;

std::vector<uint32_t> common_loops(const EquationInfo& a, const EquationInfo& b) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < a.loops.size() && i < b.loops.size() && a.loops[i] == b.loops[i]; ++i)
    out.push_back(a.loops[i]);
  return out;
}

namespace {

// What an equation writes while all loops but its last ones, from `standing` on, stand still.
std::optional<Box> box_from(const Program& p, const EquationInfo& w, size_t standing) {
  std::set<uint32_t> free;
  for (size_t i = standing; i < w.loops.size(); ++i) free.insert(p.symbol(w.loops[i]).index);
  return box_of(p, w, free);
}

}  // namespace

std::optional<std::vector<std::pair<int64_t, int64_t>>> written_box(const Program& p, const EquationInfo& w) {
  const auto box = box_from(p, w, 0);
  if (!box) return std::nullopt;
  std::vector<std::pair<int64_t, int64_t>> sides;
  for (const auto& side : box->sides) {
    const auto c = p.pool().as_constant(side.fixed);
    if (!c || side.end) return std::nullopt;
    sides.push_back({*c + side.lo, *c + side.hi});
  }
  return sides;
}

namespace {

constexpr size_t kMostWriters = 64;  // that are looked at for one read
constexpr size_t kMostBoxes = 32;    // that are put together
constexpr int64_t kMostFirst = 4;    // iterations before the first one that a recurrence reaches
constexpr int kMostDepth = 2;        // recurrences whose first iterations are asked for within one another

class Written {
 public:
  Written(const Program& p, const Access& read, std::span<const EquationInfo* const> writers,
          std::optional<uint32_t> within)
      : p_(p), pool_(p.pool()), r_(read), reader_(p.equations()[p.equation_of(read.item)]), within_(within) {
    // The last writers say most.
    for (size_t k = writers.size(); k-- > 0 && writers_.size() < kMostWriters;) {
      const auto common = common_loops(reader_, *writers[k]);
      if (!within || std::find(common.begin(), common.end(), *within) != common.end()) writers_.push_back(writers[k]);
    }
    // Loops up to `within` stand still.
    if (within)
      standing_ =
          static_cast<size_t>(std::find(reader_.loops.begin(), reader_.loops.end(), *within) - reader_.loops.begin()) +
          1;
  }

  bool proved() { return covered(r_.constraints, 0); }

 private:
  using Constraints = std::vector<sym::Expr>;
  Interval range(sym::Expr form, const Constraints& under) { return range_under(pool_, form, under); }

  bool covered(const Constraints& under, int depth) {
    for (const EquationInfo* w : writers_)
      if (same_iteration(*w, under) || at_one_distance(*w, under)) return true;
    if (together(under)) return true;
    if (depth < kMostDepth)
      for (const EquationInfo* w : writers_)
        if (recurrence(*w, under, depth)) return true;
    return false;
  }

  // Does the box hold what is read? `moved`: what symbols of the box stand for.
  bool holds(const Box& box, const std::unordered_map<sym::Expr, sym::Expr>& moved, const Constraints& under) {
    for (size_t d = 0; d < r_.subscripts.size(); ++d) {
      const Box::Side& side = box.sides[d];
      const sym::Expr at = pool_.sub(r_.subscripts[d], pool_.substitute(side.fixed, moved));
      const Interval i = range(at, under);
      if (i.lo < side.lo) return false;
      if (!side.end) {
        if (i.hi > side.hi) return false;
      } else if (range(pool_.add(pool_.sub(pool_.substitute(*side.end, moved), at), -1), under).lo < 0) {
        return false;
      }
    }
    return true;
  }

  bool same_iteration(const EquationInfo& w, const Constraints& under) {
    if (w.item >= r_.item) return false;
    const auto box = box_from(p_, w, common_loops(reader_, w).size());
    return box && holds(*box, {}, under);
  }

  // In an iteration of the loops around both that is at a constant distance before.
  bool at_one_distance(const EquationInfo& w, const Constraints& under) {
    const auto common = common_loops(reader_, w);
    if (common.size() != w.loops.size()) return false;
    const Access& write = p_.accesses()[w.first_access];
    std::map<uint32_t, int64_t> back;  // loop -> iterations ago
    for (size_t d = 0; d < write.subscripts.size(); ++d) {
      const auto offset = pool_.as_constant(pool_.sub(write.subscripts[d], r_.subscripts[d]));
      if (!offset) return false;
      if (*offset == 0) {
        // The same place in the same iterations of the loops that it depends on.
        for (uint32_t l : common)
          if (pool_.mentions(write.subscripts[d], p_.symbol(l)) && back.try_emplace(l, 0).first->second != 0)
            return false;
        continue;
      }
      // The subscript of the write is a number, or one index and a number.
      std::optional<sym::Expr> index;
      for (const auto& t : pool_.terms(write.subscripts[d])) {
        if (t.atoms.empty()) continue;
        if (index || t.atoms.size() != 1 || t.coefficient != 1) return false;
        index = t.atoms[0];
      }
      if (!index) return false;
      bool found = false;
      for (uint32_t l : common)
        if (p_.symbol(l) == *index) found = back.try_emplace(l, *offset).second;
      if (!found) return false;
    }
    bool earlier = false;
    for (size_t k = 0; k < common.size(); ++k) {
      const uint32_t l = common[k];
      const auto it = back.find(l);
      const int64_t distance = it == back.end() ? 0 : it->second;
      if (!earlier && distance < 0) return false;
      earlier = earlier || distance > 0;
      if (distance == 0) continue;
      if (k < standing_) return false;
      const auto n = p_.extent(l);
      const Interval i = range(pool_.add(p_.symbol(l), -distance), under);
      if (!n || i.lo < 0 || i.hi >= *n) return false;
      // Loops whose extents follow this one may have run less often then.
      for (uint32_t other : common)
        if (pool_.mentions(p_.extent_form(other), p_.symbol(l))) return false;
    }
    return earlier || w.item < r_.item;
  }

  // By several equations before it in the same iteration, each a part.
  bool together(const Constraints& under) {
    std::vector<std::vector<std::pair<int64_t, int64_t>>> boxes;
    std::vector<sym::Expr> base;
    for (const EquationInfo* w : writers_) {
      if (w->item >= r_.item || boxes.size() >= kMostBoxes) continue;
      const auto box = box_from(p_, *w, common_loops(reader_, *w).size());
      if (!box) continue;
      std::vector<std::pair<int64_t, int64_t>> sides;
      for (size_t d = 0; d < box->sides.size(); ++d) {
        const Box::Side& side = box->sides[d];
        if (base.size() == d) base.push_back(side.fixed);
        const auto from = pool_.as_constant(pool_.sub(side.fixed, base[d]));
        if (!from || side.end) break;
        sides.push_back({*from + side.lo, *from + side.hi});
      }
      if (sides.size() == box->sides.size()) boxes.push_back(std::move(sides));
    }
    if (boxes.size() < 2) return false;
    std::vector<int64_t> shape;
    for (size_t d = 0; d < r_.subscripts.size(); ++d) {
      const Interval i = range(pool_.sub(r_.subscripts[d], base[d]), under);
      if (i.lo > i.hi) return true;  // it is never reached
      if (i.lo <= -sym::kHuge || i.hi >= sym::kHuge) return false;
      shape.push_back(i.hi - i.lo + 1);
      for (auto& box : boxes) box[d] = {box[d].first - i.lo, box[d].second - i.lo};
    }
    return covers(shape, boxes) == Proof::yes;
  }

  // In an earlier iteration of one loop around both, by all iterations of the loops inside it; what the first ones read
  // has to come from elsewhere.
  bool recurrence(const EquationInfo& w, const Constraints& under, int depth) {
    const auto common = common_loops(reader_, w);
    for (size_t k = standing_; k < common.size(); ++k) {
      const sym::Expr index = p_.symbol(common[k]);
      const auto box = box_from(p_, w, k + 1);
      if (!box) continue;
      for (const int64_t distance : distances(w, index)) {
        Constraints later = under;
        later.push_back(pool_.add(index, -distance));
        if (!holds(*box, {{index, pool_.add(index, -distance)}}, later)) continue;
        bool first = true;
        for (int64_t i = 0; i < distance && first; ++i) {
          Constraints at = under;
          at.push_back(pool_.add(index, -i));
          at.push_back(pool_.add(pool_.mul(index, -1), i));
          first = !possible(index, at) || covered(at, depth + 1);
        }
        if (first) return true;
      }
    }
    return false;
  }
  // Can the index have a value at all?
  bool possible(sym::Expr index, const Constraints& under) {
    const Interval i = range(index, under);
    return i.lo <= i.hi;
  }
  // How many iterations ago the write may have been: what the subscripts differ by, and one.
  std::set<int64_t> distances(const EquationInfo& w, sym::Expr index) {
    std::set<int64_t> out = {1};
    const Access& write = p_.accesses()[w.first_access];
    for (size_t d = 0; d < write.subscripts.size(); ++d) {
      const auto offset = pool_.as_constant(pool_.sub(write.subscripts[d], r_.subscripts[d]));
      if (!offset || *offset == 0) continue;
      for (const auto& t : pool_.terms(write.subscripts[d]))
        if (t.atoms.size() == 1 && t.atoms[0] == index && *offset % t.coefficient == 0)
          out.insert(*offset / t.coefficient);
    }
    std::erase_if(out, [](int64_t d) { return d < 1 || d > kMostFirst; });
    return out;
  }

  const Program& p_;
  sym::Pool& pool_;
  const Access& r_;
  const EquationInfo& reader_;
  std::optional<uint32_t> within_;
  std::vector<const EquationInfo*> writers_;
  size_t standing_ = 0;
};

}  // namespace

bool written_before(const Program& p, const Access& read, std::span<const EquationInfo* const> writers,
                    std::optional<uint32_t> within) {
  return Written(p, read, writers, within).proved();
}

}  // namespace cleave::leir
