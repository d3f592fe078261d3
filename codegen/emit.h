// A planned module as source text. Emitters decide nothing: streams, order, addresses and scratch are all in the
// module.
#pragma once

#include "ir/module.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

/// One file of OUT/. The name may hold a folder ("runtime/main.cpp").
struct EmittedFile {
  std::string name;
  std::string text;
};

/// One memory space of one rank, as planned.
struct ArenaUse {
  Space space = Space::privateSpace;
  int64_t bytes = 0;        ///< a multiple of the target's granule; all of them sum to total_bytes
  int64_t usedBytes = 0;    ///< the end of the highest value
  int64_t predictBytes = 0; ///< the size for a run that predicts; 0: bytes
};

/// Bytes of one class at the peak, under its name in plan.json.
struct ClassBytes {
  std::string name;
  int64_t bytes = 0;
};

/// Where the bytes of a parameter start in the external data file of OUT/model.onnx.
struct OnnxDataOffset {
  std::string parameter;
  int64_t bytes = 0;
};

/// When the compiler expects a node to run, from the start of the step.
struct PredictedTime {
  double beginMicroseconds = 0;
  double endMicroseconds = 0;
};

/// Properties of the program that the module does not hold.
struct EmitInfo {
  std::string resources;      ///< the folder that has codegen/templates/
  std::string planHash;       ///< hex digest of the planned module
  std::string compileCommand; ///< its options as a shell takes them, for messages that say how to compile again
  std::string settingsJson;   ///< the resolved compile options, one JSON object
  int64_t microBatchSize = 1;
  uint64_t seed = 0;
  std::string optimizer; ///< adamw, sgd, ...
  std::string loss;      ///< cross_entropy, ..., model
  bool lossIsMean = true;
  bool isClassification = false; ///< eval_step returns `correct` and `total`
  int ranksPerHost = 0;          ///< at most so many share memory, whatever the hosts are; 0: no limit
  std::string labels = "labels"; ///< the input that the loss compares with
  std::string shiftedLabels;     ///< the input of labels that the graph itself compares one position later; "": none
  std::string sampleWeight = "sample_weight";
  std::optional<int64_t> ignoreIndex; ///< of the labels that a class loss adds
  int64_t classes = 0;                ///< integer labels are in [0, classes); 0: not checked
  std::vector<ArenaUse> arenas;
  std::vector<ClassBytes> memoryClasses;
  std::vector<OnnxDataOffset> onnxOffsets;
  int64_t onnxDataBytes = 0; ///< size of the external data file that --save_onnx writes
  std::string onnxDataFile;  ///< the file name OUT/model.onnx refers to
  double predictedStepMicroseconds = 0;
  double predictedExposedMicroseconds = 0;
  double peakStepMicroseconds = 0; ///< of matmuls, convolutions and attention at the device's full rate; 0: unknown
  /// For the functions of a training step: when compute reaches a node, and when the collective that a node starts
  /// runs.
  llvm::DenseMap<const Node *, PredictedTime> computeTimes, collectiveTimes;
  std::string cpuLevel; ///< cpu: as ProgramInfo::cpuLevel
  int64_t threads = 0;  ///< compute threads of a rank unless the program's --threads says otherwise; 0: cores / ranks
  CudaGraph stepReplay = CudaGraph::automatic; ///< unless the program's --cuda_graph overrides it
  Streams streams = Streams::automatic;        ///< unless the program's --streams overrides it
  bool allowRoundedOperands = false;           ///< cuda: f32 matmuls may round their operands to tf32
  bool tune = false;                           ///< cuda: matmuls use the algorithm that measured fastest
  NonFinite nonFinite = NonFinite::error;
  bool nodeRanges = false;   ///< cuda: every statement names its node, for NVIDIA's profilers
  bool poisonsFreed = false; ///< the test build: freed memory is filled with bytes that are not a number
};

class Dialect;
/// "cpu" or "cuda", as Target::name.
const Dialect &dialectOf(llvm::StringRef target);

/// The program (program.cpp or program.cu), program_info.cpp, the dialect's own files and CMakeLists.txt. Requires a
/// module at stage planned. Errors are the user's: ops that the target cannot emit, all of them in one message.
llvm::Expected<std::vector<EmittedFile>> emitProgram(const Module &module, const EmitInfo &info,
                                                     const Dialect &dialect);

/// The runtime sources of a bundle, relative to the folder that has runtime/; they go to the same path below OUT/.
std::vector<std::string> runtimeFiles(llvm::StringRef resources, llvm::StringRef target);

} // namespace fsdpc
