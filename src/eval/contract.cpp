// Contractions as batches of dense matrix products. No product is fused with its addition, so that results do not
// depend on the machine.
#include <map>

#include "eval/graph_kernels.hpp"

namespace cleave::oracle {

namespace {

#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define CLEAVE_WIDE
#endif
#endif
#ifndef CLEAVE_WIDE
#define CLEAVE_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#else
#define CLEAVE_WIDE
#endif

constexpr int64_t kColumns = 256, kDepth = 32;

// c[m][n] += a[m][k] * b[k][n], all dense. Each c is summed in the order of k.
template <class T>
inline __attribute__((always_inline)) void multiply_body(const T* a, const T* b, T* c, int64_t m, int64_t n,
                                                         int64_t k) {
  for (int64_t j0 = 0; j0 < n; j0 += kColumns) {
    const int64_t width = std::min(kColumns, n - j0);
    for (int64_t k0 = 0; k0 < k; k0 += kDepth) {
      const int64_t depth = std::min(kDepth, k - k0);
      int64_t i = 0;
      for (; i + 4 <= m; i += 4) {
        T* __restrict c0 = c + i * n + j0, * __restrict c1 = c0 + n, * __restrict c2 = c1 + n, * __restrict c3 = c2 + n;
        const T* left = a + i * k + k0;
        for (int64_t p = 0; p < depth; ++p) {
          const T* __restrict right = b + (k0 + p) * n + j0;
          const T a0 = left[p], a1 = left[p + k], a2 = left[p + 2 * k], a3 = left[p + 3 * k];
          for (int64_t j = 0; j < width; ++j) {
            c0[j] += a0 * right[j];
            c1[j] += a1 * right[j];
            c2[j] += a2 * right[j];
            c3[j] += a3 * right[j];
          }
        }
      }
      for (; i < m; ++i) {
        T* __restrict c0 = c + i * n + j0;
        for (int64_t p = 0; p < depth; ++p) {
          const T* __restrict right = b + (k0 + p) * n + j0;
          const T a0 = a[i * k + k0 + p];
          for (int64_t j = 0; j < width; ++j) c0[j] += a0 * right[j];
        }
      }
    }
  }
}

CLEAVE_WIDE void multiply(const double* a, const double* b, double* c, int64_t m, int64_t n, int64_t k) {
  multiply_body(a, b, c, m, n, k);
}
void multiply(const uint64_t* a, const uint64_t* b, uint64_t* c, int64_t m, int64_t n, int64_t k) {
  multiply_body(a, b, c, m, n, k);
}

// Copies the elements at the strided places into `out`, dense.
template <class T>
void pack(std::span<const T> from, int64_t first, const Extents& extents, const Extents& strides, std::vector<T>& out) {
  out.resize(static_cast<size_t>(product(extents)));
  size_t next = 0;
  for_each_run<1>(extents, {strides}, [&](auto at, auto by, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[next++] = from[static_cast<size_t>(first + at[0] + i * by[0])];
  });
}

}  // namespace

ContractPlan::ContractPlan(const graph::ContractSpec& spec, const Extents& a, const Extents& b, const Extents& out) {
  elements_ = product(out);
  std::vector<std::string> order;
  std::map<std::string, int64_t> extent;
  for (size_t side = 0; side < 2; ++side)
    for (size_t i = 0; i < spec.operands[side].size(); ++i) {
      const std::string& n = spec.operands[side][i];
      const int64_t e = (side ? b : a)[i];
      auto [it, fresh] = extent.emplace(n, e);
      if (fresh)
        order.push_back(n);
      else if (it->second == 1)
        it->second = e;
    }
  const Extents strides[3] = {dense_strides(a), dense_strides(b), dense_strides(out)};
  // An index that an operand repeats walks its diagonal.
  auto stride = [&](const graph::IndexNames& names, const Extents& extents, const Extents& by, const std::string& n) {
    int64_t s = 0;
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i] == n && extents[i] == extent[n]) s += by[i];
    return s;
  };
  std::vector<Index> indices;
  for (const std::string& n : order) {
    if (extent[n] == 1) continue;
    Index x{extent[n], stride(spec.operands[0], a, strides[0], n), stride(spec.operands[1], b, strides[1], n),
            stride(spec.result, out, strides[2], n)};
    const bool kept = std::find(spec.result.begin(), spec.result.end(), n) != spec.result.end();
    if (!kept) {
      terms_ *= static_cast<double>(x.extent);
      if (x.extent == 0)
        empty_sum_ = true;
      else
        summed_.push_back(x);  // also when one operand lacks it: infinities make (sum a) b differ from sum (a b)
    } else if (x.a && x.b) {
      batch_.push_back(x);
    } else if (x.a) {
      rows_.push_back(x);
    } else {
      columns_.push_back(x);
    }
  }
}

double ContractPlan::multiplications() const { return terms_ * static_cast<double>(elements_); }
double ContractPlan::terms() const { return terms_; }

template <class T>
std::vector<T> ContractPlan::run_as(std::span<const T> a, std::span<const T> b) const {
  std::vector<T> out(static_cast<size_t>(elements_));
  if (elements_ == 0 || empty_sum_) return out;

  // The longer of rows and columns is the inner loop.
  auto count = [](const std::vector<Index>& list) {
    int64_t n = 1;
    for (const Index& x : list) n *= x.extent;
    return n;
  };
  const bool swapped = count(rows_) > count(columns_);
  const auto &left = swapped ? columns_ : rows_, &right = swapped ? rows_ : columns_;
  const auto from_left = swapped ? b : a, from_right = swapped ? a : b;
  auto in_left = [&](const Index& x) { return swapped ? x.b : x.a; };
  auto in_right = [&](const Index& x) { return swapped ? x.a : x.b; };
  Extents le, ls, re, rs, oe, os, be, bl, br, bo;
  for (const Index& x : left)
    le.push_back(x.extent), ls.push_back(in_left(x)), oe.push_back(x.extent), os.push_back(x.out);
  for (const Index& x : summed_)
    le.push_back(x.extent), ls.push_back(in_left(x)), re.push_back(x.extent), rs.push_back(in_right(x));
  for (const Index& x : right)
    re.push_back(x.extent), rs.push_back(in_right(x)), oe.push_back(x.extent), os.push_back(x.out);
  for (const Index& x : batch_)
    be.push_back(x.extent), bl.push_back(in_left(x)), br.push_back(in_right(x)), bo.push_back(x.out);
  const int64_t m = count(left), n = count(right), k = count(summed_);

  std::vector<T> l, r, c(static_cast<size_t>(m * n));
  for_each_run<3>(be, {bl, br, bo}, [&](auto at, auto by, int64_t batches) {
    for (int64_t i = 0; i < batches; ++i) {
      pack(from_left, at[0] + i * by[0], le, ls, l);
      pack(from_right, at[1] + i * by[1], re, rs, r);
      std::fill(c.begin(), c.end(), T{0});
      multiply(l.data(), r.data(), c.data(), m, n, k);
      size_t next = 0;
      for_each_run<1>(oe, {os}, [&](auto to, auto step, int64_t width) {
        for (int64_t j = 0; j < width; ++j)
          out[static_cast<size_t>(at[2] + i * by[2] + to[0] + j * step[0])] = c[next++];
      });
    }
  });
  return out;
}

std::vector<double> ContractPlan::run(std::span<const double> a, std::span<const double> b) const {
  return run_as<double>(a, b);
}

std::vector<int64_t> ContractPlan::run(std::span<const int64_t> a, std::span<const int64_t> b) const {
  // Unsigned arithmetic wraps; signed would be undefined.
  auto bits = [](std::span<const int64_t> x) {
    return std::span(reinterpret_cast<const uint64_t*>(x.data()), x.size());
  };
  const std::vector<uint64_t> r = run_as<uint64_t>(bits(a), bits(b));
  return {r.begin(), r.end()};
}

}  // namespace cleave::oracle
