#include "orchestrator/http/tls_identity.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "common/log.h"

namespace moestro::orchestrator {

namespace fs = std::filesystem;

namespace {

constexpr int kWarnDays = 14;

struct Free {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

/// The last of OpenSSL's errors, and an empty queue.
std::string reason() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* text = code != 0 ? ERR_reason_error_string(code) : nullptr;
  return text != nullptr ? text : "unknown to OpenSSL";
}

Result<std::string> read_file(const char* flag, const fs::path& file) {
  std::error_code ignored;
  if (fs::is_directory(file, ignored))
    return invalid_argument(std::string(flag) + " " + file.string() + " is a directory; give a file in PEM form");
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in.is_open())
    return io_error(std::string(flag) + ": cannot read " + file.string() + (errno == EACCES ? " as this user" : ""),
                    errno);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Owned<BIO> over(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Result<Owned<X509>> read_certificate(const fs::path& file) {
  MOESTRO_ASSIGN_OR_RETURN(const std::string text, read_file("--tls-cert", file));
  Owned<X509> certificate(PEM_read_bio_X509_AUX(over(text).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (!certificate)
    return invalid_argument("--tls-cert: no certificate in PEM form in " + file.string() +
                            "; it begins with -----BEGIN CERTIFICATE-----, and the chain follows it");
  return certificate;
}

Result<Owned<EVP_PKEY>> read_key(const fs::path& file) {
  MOESTRO_ASSIGN_OR_RETURN(std::string text, read_file("--tls-key", file));
  bool asked = false;  // nobody is there who could type a passphrase
  const auto no_passphrase = [](char*, int, int, void* told) -> int { return *static_cast<bool*>(told) = true, -1; };
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(over(text).get(), nullptr, no_passphrase, &asked));
  OPENSSL_cleanse(text.data(), text.size());
  ERR_clear_error();
  if (asked)
    return invalid_argument("--tls-key: " + file.string() +
                            " is locked with a passphrase; make one without: openssl pkey -in " + file.string() +
                            " -out NEW");
  if (!key)
    return invalid_argument("--tls-key: no private key in PEM form in " + file.string() +
                            "; it begins with -----BEGIN PRIVATE KEY-----");
  struct stat seen {};
  if (::stat(file.c_str(), &seen) == 0 && (seen.st_mode & S_IROTH) != 0)
    log::warn("--tls-key: everybody on this machine can read {}: chmod o-r", file.string());
  return key;
}

void warn_of_dates(const X509* certificate, const fs::path& file) {
  int days = 0, seconds = 0;
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
    log::warn("--tls-cert: {} is not valid yet: clients will refuse it; is this machine's clock right?", file.string());
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
    log::warn(
        "--tls-cert: {} has expired: clients will refuse it; put a new one in its place, it is taken up without a "
        "restart",
        file.string());
  else if (ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notAfter(certificate)) == 1 && days < kWarnDays)
    log::warn("--tls-cert: {} expires in {} days", file.string(), days);
}

Result<std::shared_ptr<tls::Context>> read_identity(const TlsFiles& files) {
  MOESTRO_ASSIGN_OR_RETURN(const Owned<X509> certificate, read_certificate(files.certificate));
  MOESTRO_ASSIGN_OR_RETURN(const Owned<EVP_PKEY> key, read_key(files.key));
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    ERR_clear_error();
    return invalid_argument(
        "the key in " + files.key.string() + " does not belong to the certificate in " + files.certificate.string() +
        "; give the two that were made together (the server's own certificate comes first in its file)");
  }
  auto context = std::make_shared<tls::Context>(tls::Context::tls_server);
  SSL_CTX* ssl = context->native_handle();
  SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
  SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS);  // of connections that wait
  if (SSL_CTX_use_certificate_chain_file(ssl, files.certificate.c_str()) != 1)
    return invalid_argument("--tls-cert: " + files.certificate.string() + " cannot be used: " + reason());
  if (SSL_CTX_use_PrivateKey(ssl, key.get()) != 1)
    return invalid_argument("--tls-key: " + files.key.string() + " cannot be used: " + reason());
  warn_of_dates(certificate.get(), files.certificate);
  return context;
}

fs::file_time_type changed(const fs::path& file) {
  std::error_code error;
  const auto time = fs::last_write_time(file, error);  // of what a link leads to: renewals replace links
  return error ? fs::file_time_type::min() : time;
}

}  // namespace

TlsIdentity::Stamp TlsIdentity::stamp() const { return {changed(files_.certificate), changed(files_.key)}; }

Result<std::unique_ptr<TlsIdentity>> TlsIdentity::load(TlsFiles files) {
  std::unique_ptr<TlsIdentity> identity(new TlsIdentity(std::move(files)));
  identity->stamp_ = identity->stamp();
  MOESTRO_ASSIGN_OR_RETURN(identity->context_, read_identity(identity->files_));
  identity->looked_ = std::chrono::steady_clock::now();
  return identity;
}

std::shared_ptr<tls::Context> TlsIdentity::current(std::chrono::steady_clock::time_point now) {
  if (now - looked_ < kLookEvery) return context_;
  looked_ = now;
  const Stamp seen = stamp();
  if (seen == stamp_) return context_;
  stamp_ = seen;
  auto read = read_identity(files_);
  if (read.is_ok()) {
    context_ = std::move(*read);
    log::info("the certificate in {} has been replaced: new connections get the new one", files_.certificate.string());
  } else {
    log::warn("the certificate was replaced by one that cannot be used; the former one stays: {}",
              read.status().message());
  }
  return context_;
}

}  // namespace moestro::orchestrator
