#pragma once
// Whether the box serves https.

#include "common/config/box_config.h"
#include "common/status.h"

namespace moestro::box {

/// kInvalidArgument if there is a certificate without a key, or a key without a certificate.
inline Result<bool> serves_https(const config::BoxConfig& box) {
  const bool certificate = !box.orchestrator.tls_cert.empty(), key = !box.orchestrator.tls_key.empty();
  if (certificate == key) return certificate;
  return invalid_argument(certificate
                              ? "--tls-cert without --tls-key: give the file of the certificate's private key too"
                              : "--tls-key without --tls-cert: give the file of the certificate too");
}

}  // namespace moestro::box
