// The picture of `fracgpu top`: a given number of rows and columns, made of a machine state and the
// user's choices. Independent of the terminal.
#pragma once

#include <string>
#include <vector>

#include "tools/machine/machine_state.h"
#include "tools/ui/drawing.h"

namespace fracgpu::tools {

class TopScreen {
 public:
  explicit TopScreen(const Style& style) : style_(style) {}

  // Lines that fit. The last line lists the keys.
  std::vector<std::string> picture(const MachineState& machine, int rows, int columns);

  // False if the key quits.
  bool press(int key);

  enum class Order { used, peak, name, gpu, since, refused };

 private:
  struct Row;
  std::vector<Row> process_rows(const MachineState& machine) const;
  std::vector<Row> tenant_rows(const MachineState& machine) const;
  std::vector<Row> sorted_rows(const MachineState& machine) const;
  std::vector<std::string> gpu_lines(const MachineState& machine, int most, int columns) const;
  std::string title(const MachineState& machine) const;

  Style style_;
  Order order_ = Order::used;
  bool reversed_ = false;
  bool by_tenant_ = false;
  bool gpus_only_ = false;
  bool help_ = false;
  int first_ = 0;  // row shown at the top
  int page_ = 1;   // rows that fit
};

}  // namespace fracgpu::tools
