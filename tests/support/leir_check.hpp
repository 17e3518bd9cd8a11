// Texts of LEIR programs as checked programs, their data, and comparisons bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/rng.hpp"
#include "leir_eval/interpret.hpp"

namespace cleave::testing {

inline leir::Program leir_program(const std::string& text) {
  leir::Parsed p = leir::parse(SourceText{"p.leir", text});
  EXPECT_TRUE(p.ok()) << render(p.messages, nullptr);
  leir::Checked c = leir::check(std::move(p.syntax));
  EXPECT_TRUE(c.program) << text << "\n" << render(c.messages, nullptr);
  return std::move(*c.program);
}

inline std::map<std::string, leir::Array> leir_data(const leir::Program& p, uint64_t seed) {
  Rng rng(seed);
  std::map<std::string, leir::Array> out;
  for (uint32_t v = 0; v < p.variables().size(); ++v) {
    const leir::Variable& var = p.variables()[v];
    if (!var.known() || var.role == leir::Role::output) continue;
    leir::Array a = leir::make_array(var.type, var.shape);
    for (double& x : a.reals)
      x = leir::round_real(var.type, rng.below(20)  ? rng.normal() * (rng.below(9) ? 1 : 30)
                                     : rng.below(2) ? -0.0
                                                    : INFINITY);
    for (int64_t& x : a.integers)
      x = var.values ? rng.between(var.values->first, var.values->second) : rng.between(0, 3);
    out.emplace(p.name(v), std::move(a));
  }
  return out;
}

// The buffers of a program in order: inputs filled, all else a pattern.
struct LeirBuffers {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<void*> pointers;

  LeirBuffers(const leir::Program& p, const std::map<std::string, leir::Array>& inputs) {
    for (uint32_t v = 0; v < p.variables().size(); ++v) {
      const leir::Variable& var = p.variables()[v];
      const auto width = static_cast<size_t>(leir::byte_size(var.type));
      bytes.emplace_back(static_cast<size_t>(var.elements()) * width, std::byte{0x5a});
      if (const auto it = inputs.find(p.name(v)); it != inputs.end())
        for (size_t i = 0; i < static_cast<size_t>(var.elements()); ++i) {
          if (it->second.real())
            leir::store_real(var.type, bytes.back().data() + i * width, it->second.reals[i]);
          else
            leir::store_integer(var.type, bytes.back().data() + i * width, it->second.integers[i]);
        }
    }
    for (auto& b : bytes) pointers.push_back(b.data());
  }
};

// Bit for bit; one NaN is as good as another.
inline void expect_same(const leir::Program& p, const LeirBuffers& got, const std::map<std::string, leir::Array>& want,
                        const std::string& what) {
  for (uint32_t v = 0; v < p.variables().size(); ++v) {
    const auto it = want.find(p.name(v));
    if (it == want.end()) continue;
    const leir::Type type = p.variables()[v].type;
    const auto width = static_cast<size_t>(leir::byte_size(type));
    for (size_t i = 0; i < static_cast<size_t>(it->second.elements()); ++i) {
      const std::byte* at = got.bytes[v].data() + i * width;
      if (it->second.real()) {
        const double g = leir::load_real(type, at), w = it->second.reals[i];
        if (std::isnan(g) && std::isnan(w)) continue;
        ASSERT_EQ(std::bit_cast<uint64_t>(g), std::bit_cast<uint64_t>(w))
            << what << ": " << p.name(v) << "[" << i << "] is " << g << ", not " << w;
      } else {
        ASSERT_EQ(leir::load_integer(type, at), it->second.integers[i]) << what << ": " << p.name(v) << "[" << i << "]";
      }
    }
  }
}

// Programs that use every operation, in T for a real type.
inline std::vector<std::string> leir_samples() {
  std::vector<std::string> out;
  std::string calls;
  for (const leir::FunctionInfo& f : leir::all_functions()) {
    const std::string name = f.name;
    if (f.arity == 1)
      calls += fmt::format("{}if_then_else(c=={},{}(A^{{T,g}}_{{a,c}}),0)", calls.empty() ? "" : "+", calls.size() % 7,
                           name);
  }
  const std::string h = "in A T[5,7];in E T[7];in I i64[5] range 0..6;in M bool[5];in J i16[5];";
  for (std::string text : {
           h + "out C "
               "T[5];B^{5}_{tx=0}L^{7}_{a=0}[C^{T,g}_{tx}=C^{T,g}_{tx}+A^{T,g}_{tx,a}*E^{T,g}_{a};];L^{5}_{a=0}[C^{T,g}"
               "_{a}=C^{T,g}_{a}/(1+abs(C^{T,g}_{a}));];",
           h + "out C T[5,7];L^{5}_{a=0}L^{7}_{c=0}[C^{T,g}_{a,c}=" + calls + ";];",
           h + "out C T[7];L^{5}_{a=0}V^{7}_{c=0}[C^{T,g}_{c}=max(C^{T,g}_{c},min(A^{T,g}_{a,c},E^{T,g}_{c}));];",
           h + "out C "
               "T[5];L^{5}_{a=0}[C^{T,g}_{a}=fma(A^{T,g}_{a,0},A^{T,g}_{a,1},0.3*a)-fma(A^{T,g}_{a,2},2,A^{T,g}_{a,3});"
               "];",
           h + "out C "
               "T[9];L^{9}_{c=0}[C^{T,g}_{c}=if_then_else(1<=c<8&E^{T,g}_{c-1}>0,E^{T,g}_{c-1}**3-E^{T,g}_{c-1}**(-2),"
               "clamp(c/2,0.1,c)+leaky_relu(-c,0.3)+elu(1-c,0.7));];",
           h + "out C i32[5];out D u8[5];out F bool[5];out G "
               "u64[5];L^{5}_{a=0}[C^{i32,g}_{a}=I^{i64,g}_{a}*100000//"
               "(J^{i16,g}_{a}+1)%7-A^{T,g}_{a,0}*3;D^{u8,g}_{a}=A^{T,g}_{a,1}*200;F^{bool,g}_{a}=M^{bool,g}_{a}==0|J^{"
               "i16,g}_{a}>1;G^{u64,g}_{a}=A^{T,g}_{a,2}*1e18;];",
           h + "out C "
               "T[5];L^{5}_{a=0}[C^{T,g}_{a}=E^{T,g}_{I^{i64,g}_{a}}+M^{bool,g}_{a}*2+max(I^{i64,g}_{a},a)-abs(J^{i16,"
               "g}_{a}-2)+sign(1-a);];",
           h + "out C T[7];L^{7}_{a=0}[C^{T,g}_{a}=if_then_else(0<=E^{T,g}_{a}<A^{T,g}_{1,a}+0.5<=A^{T,g}_{2,a}*3<"
               "inf,E^{T,g}_{a}<1<=A^{T,g}_{3,a},2<3<a+1);];",
           h + "out C T[7];L^{7}_{a=0}[C^{T,g}_{a}=if_then_else(a<1,0,C^{T,g}_{a-1})+E^{T,g}_{a};];",
           h + "out C T[5];L^{5}_{a=0}L^{a+1}_{c=0}[C^{T,g}_{a}=C^{T,g}_{a}*(E^{T,g}_{c}+c%3);];",
           h + "out C "
               "T[5];B^{5}_{tx=0}[L^{7}_{a=0}[D^{T,l}_{a}=A^{T,g}_{tx,6-a};];L^{7}_{a=0}[F^{T,l}=F^{T,l}+D^{T,l}_{a}*a;"
               "];C^{T,g}_{tx}=F^{T,l};];",
           h + "out C "
               "T[7,5];L^{7}_{c=0}L^{5}_{a=0}U^{3}_{d=0}[C^{T,g}_{c,a}=min(C^{T,g}_{c,a},A^{T,g}_{a,c}*d-E^{T,g}_{c}**"
               "0.5);];",
           h + "out C T[7];L^{5}_{a=0}L^{7}_{c=0}[C^{T,g}_{c}=C^{T,g}_{c}+A^{T,g}_{a,c};];",
           h + "out C "
               "T[5];B^{5}_{tx=0}[L^{7}_{a=0}[D^{T,l}_{tx,a}=A^{T,g}_{tx,6-a}*2;];L^{7}_{a=0}[F^{T,l}_{tx}=F^{T,l}_{tx}"
               "+"
               "D^{T,l}_{tx,a}*a;];C^{T,g}_{tx}=F^{T,l}_{tx};];",
           h + "out C T[7];L^{5}_{a=0}B^{7}_{tx=0}[C^{T,g}_{tx}=C^{T,g}_{tx}+A^{T,g}_{a,tx};];",
           // u64 beyond what signed integers hold.
           h + "out C u64[5];out D u64[];out F "
               "u64[];L^{5}_{a=0}[G^{u64,g}_{a}=I^{i64,g}_{a}-2;];L^{5}_{a=0}[C^{u64,g}_{a}="
               "clamp(G^{u64,g}_{a},1,9)+max(G^{u64,g}_{a},3)*2+min(G^{u64,g}_{a},3)*3+abs(G^{u64,g}_{a})+"
               "sign(G^{u64,g}_{a})+relu(G^{u64,g}_{a});];L^{5}_{a=0}[D^{u64,g}=max(D^{u64,g},G^{u64,g}_{a});];"
               "L^{5}_{a=0}[F^{u64,g}=min(F^{u64,g},G^{u64,g}_{a});];",
       })
    for (const char* type : {"f32", "f64", "f16", "bf16"}) {
      std::string t = text;
      for (size_t i = t.find("T"); i != std::string::npos; i = t.find("T", i + 1)) t.replace(i, 1, type);
      out.push_back(t);
    }
  return out;
}

}  // namespace cleave::testing
