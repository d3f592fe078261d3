// One function per data format: opens the files, checks every header, and adds the fields. See dataset.h.
#pragma once

#include "runtime/common/dataset.h"

namespace fsdpc::rt {

void openSafetensorsData(Dataset &data, const std::vector<std::string> &paths);

/// With a known magic number, the file starts with a header of 256 int32: magic 20240520, version 1, uint16 tokens; or
/// 20240801, version 7, uint32 tokens. Word 2 is the number of tokens, and the file size must match it. Without a magic
/// number, the whole file is uint16 tokens if the user named the format.
void openTokenData(Dataset &data, const std::vector<std::string> &paths, const DataRequest &request);

/// One image file (magic 0x00000803, or any rank above 1) and one label file (0x00000801), both of unsigned bytes. A
/// label file that is not among `paths` is searched for under MNIST's name for it.
void openIdxData(Dataset &data, const std::vector<std::string> &paths,
                 const std::optional<std::pair<float, float>> &normalize);

/// `pattern`: name=GLOB.npy[,name=GLOB.npy...]. Versions 1 to 3, C order, little-endian.
void openNpyData(Dataset &data, const std::string &pattern);

/// WebDataset: consecutive members KEY.EXTENSION of one key are a sample. Members .npy are fields of that name, which
/// is what stands between the key and `.npy`, or `npy`; .cls is the field `labels`, a number as text. Throws
/// Failure{usage} for compressed images.
void openTarData(Dataset &data, const std::vector<std::string> &paths);

struct NpyArray {
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> dims;
  std::int64_t offsetBytes = 0; ///< of the elements, in the file
};

/// The array of `bytes` at byte `at` of a file. Throws Failure{corrupt}.
NpyArray readNpyArray(const InputFile &file, std::int64_t at, std::int64_t bytes);

bool hasTokenMagic(const InputFile &file);
bool hasIdxMagic(const InputFile &file);

} // namespace fsdpc::rt
