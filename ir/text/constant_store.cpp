#include "ir/text/constant_store.h"

#include "ir/write_file.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/xxhash.h"

namespace fsdpc {

namespace {

/// f32.0123456789abcdef0123456789abcdef
std::string nameOf(const Dense &dense) {
  const llvm::XXH128_hash_t hash = llvm::xxh3_128bits(dense.bytes());
  return fsdpc::nameOf(dense.dtype()).str() + "." + llvm::utohexstr(hash.high64, /*LowerCase=*/true, 16) +
         llvm::utohexstr(hash.low64, /*LowerCase=*/true, 16);
}

std::string pathIn(llvm::StringRef folder, llvm::StringRef name) {
  llvm::SmallString<128> path(folder);
  llvm::sys::path::append(path, name);
  return path.str().str();
}

/// A type and 32 digits: no path.
bool isName(llvm::StringRef name) {
  const auto [type, digest] = name.split('.');
  return dtypeFromName(type) && digest.size() == 32 && llvm::all_of(digest, llvm::isHexDigit);
}

} // namespace

std::string ConstantStore::beside(llvm::StringRef path) {
  return pathIn(llvm::sys::path::parent_path(path), folderName);
}

std::string ConstantStore::add(const Dense &dense) {
  std::string name = nameOf(dense);
  byName.try_emplace(name, dense);
  return name;
}

llvm::Expected<Dense> ConstantStore::find(llvm::StringRef name) const {
  if (auto found = byName.find(name); found != byName.end())
    return found->second;
  if (!isName(name))
    return llvm::createStringError("'" + name + "' is not the name of a constant");
  if (folder.empty())
    return llvm::createStringError("the bytes of constant " + name + " are not here");
  const std::string path = pathIn(folder, name);
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer)
    return llvm::createStringError(path + ": " + buffer.getError().message());
  const DType dtype = *dtypeFromName(name.split('.').first);
  const llvm::StringRef bytes = (*buffer)->getBuffer();
  if (bytes.size() % byteSize(dtype) != 0)
    return llvm::createStringError(path + ": its size is not a multiple of the element size");
  Dense dense(dtype, std::vector<uint8_t>(bytes.bytes_begin(), bytes.bytes_end()));
  if (nameOf(dense) != name)
    return llvm::createStringError(path + ": its bytes are not those that its name says");
  return dense;
}

llvm::Error ConstantStore::write(llvm::StringRef target) const {
  if (byName.empty())
    return llvm::Error::success();
  if (std::error_code code = llvm::sys::fs::create_directories(target))
    return llvm::createStringError(target + ": " + code.message());
  for (const auto &entry : byName) {
    const std::string path = pathIn(target, entry.first());
    if (llvm::sys::fs::exists(path))
      continue;
    if (llvm::Error error = writeFile(path, entry.second.asText()))
      return error;
  }
  return llvm::Error::success();
}

} // namespace fsdpc
