#include "runtime/common/taps.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace fsdpc::rt {
namespace {

constexpr std::int64_t chunkBytes = 1 << 16;

bool isIdentity(const ParameterInfo &parameter) {
  for (int i = 0; i < parameter.shape.rank; ++i)
    if (parameter.onnxPermutation[i] != i)
      return false;
  return true;
}

class SafetensorsTap final : public FileTap {
public:
  SafetensorsTap(const ProgramInfo &program, const std::string &path, const std::string &prefix, bool trainableOnly,
                 NameUntilCommit until, int rank)
      : FileTap(program), prefix(prefix) {
    if (rank != 0)
      return;
    std::vector<TensorSpec> specs;
    for (const ParameterInfo &parameter : program.parameters)
      if (parameter.trainable || !trainableOnly)
        specs.push_back({prefix + parameter.name, elementType(parameter.dtype), dimsOf(parameter.shape)});
    writer.emplace(path, std::move(specs), until, "pt");
  }

  void take(int parameter, const void *data, std::int64_t first, std::int64_t elements) override {
    if (!writer)
      return;
    const ParameterInfo &info = program.parameters[static_cast<std::size_t>(parameter)];
    const std::int64_t width = byteSize(info.dtype);
    if (const auto tensor = writer->find(prefix + info.name))
      writer->writeRange(*tensor, first * width, data, elements * width);
  }

  void finish() override {
    if (writer)
      writer->commit();
  }

private:
  std::string prefix;
  std::optional<SafetensorsWriter> writer;
};

class OnnxTap final : public FileTap {
public:
  OnnxTap(const ProgramInfo &program, const std::string &path, const std::string &outDirectory, int rank)
      : FileTap(program) {
    if (rank != 0)
      return;
    model.emplace(outDirectory + "/model.onnx");
    data.emplace(parentDirectory(path) + "/" + program.onnxDataFile, program.onnxDataBytes, NameUntilCommit::none);
    copy.emplace(path, model->sizeBytes(), NameUntilCommit::none);
  }

  void take(int parameter, const void *tensor, std::int64_t first, std::int64_t elements) override {
    if (!data)
      return;
    const ParameterInfo &info = program.parameters[static_cast<std::size_t>(parameter)];
    const std::int64_t width = byteSize(info.dtype);
    if (isIdentity(info))
      return data->write(info.onnxOffsetBytes + first * width, tensor, elements * width);
    if (elements != info.shape.elements())
      throw Failure(ExitCode::internal, "a part of '" + std::string(info.name) + "', which the model file permutes");
    writePermuted(*data, info, static_cast<const std::byte *>(tensor));
  }

  void finish() override {
    if (!data)
      return;
    std::vector<std::byte> buffer(static_cast<std::size_t>(chunkBytes));
    for (std::int64_t at = 0; at < model->sizeBytes(); at += chunkBytes) {
      const std::int64_t bytes = std::min(chunkBytes, model->sizeBytes() - at);
      model->read(at, buffer.data(), bytes);
      copy->write(at, buffer.data(), bytes);
    }
    data->commit();
    copy->commit();
  }

private:
  std::optional<InputFile> model; ///< on rank 0, as are the next
  std::optional<OutputFile> data, copy;
};

/// Walks the elements of a permuted tensor in the order of the file.
class PermutedWalk {
public:
  explicit PermutedWalk(const ParameterInfo &parameter) : rank(parameter.shape.rank) {
    std::int64_t strides[maxRank] = {};
    std::int64_t stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
      strides[i] = stride;
      stride *= parameter.shape.dims[i];
    }
    for (int i = 0; i < rank; ++i) {
      dims[i] = parameter.shape.dims[parameter.onnxPermutation[i]];
      step[i] = strides[parameter.onnxPermutation[i]];
    }
  }

  /// Returns the index of the next element in the parameter.
  std::int64_t next() {
    const std::int64_t result = at;
    for (int i = rank - 1; i >= 0; --i) {
      at += step[i];
      if (++index[i] < dims[i])
        break;
      at -= step[i] * dims[i];
      index[i] = 0;
    }
    return result;
  }

private:
  int rank;
  std::int64_t at = 0;
  std::int64_t index[maxRank] = {};
  std::int64_t dims[maxRank] = {};
  std::int64_t step[maxRank] = {};
};

} // namespace

void Tap::takeParts(int parameter, const void *data, std::int64_t bytes, const TapParts &parts) {
  const ParameterInfo &info = program.parameters[static_cast<std::size_t>(parameter)];
  const std::int64_t elements = info.shape.elements(), width = byteSize(info.dtype);
  if (parts.part == 0)
    return take(parameter, data, 0, elements);
  for (std::int64_t i = 0; (i + 1) * parts.part * width <= bytes; ++i)
    if (const std::int64_t first = parts.from + i * parts.every; first < elements)
      take(parameter, static_cast<const std::byte *>(data) + i * parts.part * width, first,
           std::min(parts.part, elements - first));
}

void writePermuted(OutputFile &file, const ParameterInfo &parameter, const std::byte *data) {
  const std::int64_t elementBytes = byteSize(parameter.dtype);
  const std::int64_t elements = parameter.shape.elements();
  if (isIdentity(parameter)) {
    file.write(parameter.onnxOffsetBytes, data, elements * elementBytes);
    return;
  }
  std::byte buffer[chunkBytes];
  PermutedWalk walk(parameter);
  const std::int64_t perChunk = chunkBytes / elementBytes;
  for (std::int64_t done = 0; done < elements; done += perChunk) {
    const std::int64_t count = std::min(perChunk, elements - done);
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(buffer + i * elementBytes, data + walk.next() * elementBytes, static_cast<std::size_t>(elementBytes));
    file.write(parameter.onnxOffsetBytes + done * elementBytes, buffer, count * elementBytes);
  }
}

std::unique_ptr<FileTap> weightsTap(const ProgramInfo &program, const std::string &path, int rank) {
  return std::make_unique<SafetensorsTap>(program, path, "", false, NameUntilCommit::none, rank);
}

std::unique_ptr<FileTap> gradientsTap(const ProgramInfo &program, const std::string &path, int rank) {
  return std::make_unique<SafetensorsTap>(program, path, "grad.", true, NameUntilCommit::temporary, rank);
}

std::unique_ptr<FileTap> onnxTap(const ProgramInfo &program, const std::string &path, const std::string &outDirectory,
                                 int rank) {
  return std::make_unique<OnnxTap>(program, path, outDirectory, rank);
}

void requireOnnxWritable(const ProgramInfo &program, const std::string &path) {
  if (program.onnxDataBytes == 0)
    throw Failure(ExitCode::usage,
                  "--save_onnx: this program was compiled from a stage without the model.onnx of its output folder");
  requireWritable(path);
  const std::string dataPath = parentDirectory(path) + "/" + program.onnxDataFile;
  if (path == dataPath || parentDirectory(path) + "/" + path == dataPath)
    throw Failure(ExitCode::storage, path + ": this is the name of the model's data file; choose another");
  if (fileExists(dataPath) && !fileExists(path))
    throw Failure(ExitCode::storage,
                  dataPath + " exists and belongs to another model; the model's data file has a fixed name, so " +
                      "save " + path + " in a folder of its own");
}

} // namespace fsdpc::rt
