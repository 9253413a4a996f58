#include "trireme/nn/residence.h"

namespace trireme::nn {

int Residence::copies(const GridShape& grid, Axes among) const {
  int copies = 1;
  for (const Span& span : copied) copies *= among.contains(span.axes) ? grid.extent(span) : 1;
  return copies;
}

int Residence::copy(const GridShape& grid, int place, Axes among) const {
  int copy = 0;
  for (const Span& span : copied) {
    if (!among.contains(span.axes)) continue;
    copy = copy * grid.extent(span) + grid.index(place, span);
  }
  return copy;
}

}  // namespace trireme::nn
