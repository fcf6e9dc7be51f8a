// The estimate of a context is above every figure that was published of one.
#include "hooks/cuda/context_size.h"

#include <gtest/gtest.h>

namespace fracgpu::cuda {
namespace {

struct Published {
  const char* card;
  int multiprocessors;
  double mib;
  const char* source;
};

// Contexts alone, without a framework's code.
constexpr Published kPublished[] = {
    {"RTX 4060 Ti", 34, 107, "ggml-org/llama.cpp PR 23604"},
    {"RTX PRO 6000 Blackwell", 188, 555, "ggml-org/llama.cpp PR 23604"},
    {"Titan V", 80, 320.1875 - 0.9375, "pytorch/pytorch issue 28394, by PyCuda"},
};

TEST(ContextSizeTest, TheEstimateIsAboveEveryPublishedFigure) {
  for (const Published& figure : kPublished) {
    EXPECT_GE(static_cast<double>(most_context_bytes(figure.multiprocessors)),
              figure.mib * (1 << 20))
        << figure.card << ": " << figure.source;
    // It would also be without the least that stands for what nobody has published.
    EXPECT_GT(4.5 * figure.multiprocessors, figure.mib) << figure.card;
  }
}

TEST(ContextSizeTest, WithoutANumberOfMultiprocessorsItIsTheLeast) {
  EXPECT_EQ(most_context_bytes(0), 512u << 20);
  EXPECT_EQ(most_context_bytes(-1), 512u << 20);
}

}  // namespace
}  // namespace fracgpu::cuda
