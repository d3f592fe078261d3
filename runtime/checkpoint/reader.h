// Reads a checkpoint into the state of a program, whatever strategy and number of ranks wrote it.
//
// A rank reads the blocks that hold its elements and no others, and verifies each. A difference is Failure{corrupt}
// naming file and tensor.
#pragma once

#include "runtime/checkpoint/manifest.h"
#include "runtime/common/program.h"
#include "runtime/common/safetensors.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdpc::rt {

/// Reads ranges of the tensors of a checkpoint. Not thread-safe.
class CheckpointReader {
public:
  /// Reads the manifest and compares the sizes of all files. Throws Failure{corrupt, incompatible}.
  explicit CheckpointReader(std::string folder);

  const Manifest &manifest() const { return contents; }
  const std::string &folder() const { return path; }
  const ManifestTensor *find(std::string_view name) const;

  /// Elements [first, first + elements) of a tensor, converted to `dtype`.
  void read(const ManifestTensor &tensor, std::int64_t first, std::int64_t elements, DType dtype, std::byte *to);
  /// The same, as they are stored.
  void readStored(const ManifestTensor &tensor, std::int64_t first, std::int64_t elements, std::byte *to);
  /// Verifies the header of a file.
  void verifyHeader(std::size_t file) { open(file); }

private:
  const SafetensorsFile &open(std::size_t file);
  /// Calls take(data, elements) for the parts of elements [first, first + elements), in order.
  template <class Take>
  void visit(const ManifestTensor &tensor, std::int64_t first, std::int64_t elements, const Take &take);
  const std::byte *readBlock(const ManifestTensor &tensor, const ManifestSlice &slice, std::int64_t block);

  std::string path;
  Manifest contents;
  std::vector<std::unique_ptr<SafetensorsFile>> files; ///< those that are open
  std::vector<std::byte> buffer;                       ///< one block
  const ManifestSlice *bufferedSlice = nullptr;
  std::int64_t bufferedBlock = 0, bufferedBytes = 0;
};

/// Throws Failure{incompatible}, with a list of differences, unless the checkpoint holds exactly the parameters and
/// optimizer states of the program.
void requireFits(const ProgramInfo &program, const CheckpointReader &reader);

/// Sets the parameters, optimizer states and scalars of this rank. Rank r also verifies the headers of files r, r + N
/// and so on. `beat` is called repeatedly.
void loadState(
    const ProgramInfo &program, const Context &context, CheckpointReader &reader,
    const std::function<void()> &beat = [] {});

} // namespace fsdpc::rt
