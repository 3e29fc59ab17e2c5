#include "common/machine/capability.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace moestro::machine {

bool raise_capability(int capability) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  __user_cap_data_struct& word = data[CAP_TO_INDEX(capability)];
  const auto bit = static_cast<unsigned>(CAP_TO_MASK(capability));
  if ((word.permitted & bit) == 0) return false;
  if ((word.effective & bit) != 0) return true;
  word.effective |= bit;
  return ::syscall(SYS_capset, &header, data) == 0;
}

}  // namespace moestro::machine
