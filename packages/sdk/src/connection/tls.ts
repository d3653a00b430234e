/**
 * Certificates in PEM for `https` and `wss`, as files: they are read at each new connection and can be replaced at any time.
 * In Node only; a browser has its own.
 */
export interface TlsFiles {
  /** CA of the servers, in place of those that Node trusts. */
  caFile?: string | undefined;
  /** Client certificate, for servers that require one. */
  certFile?: string | undefined;
  keyFile?: string | undefined;
}

export type Fetch = (url: URL | string, init: RequestInit) => Promise<Response>;

const UNTRUSTED =
  "its certificate is not signed by a CA that this process trusts; name the CA with tls.caFile, TENURE_CA_FILE or HOST_CA_FILE";
const NO_CERTIFICATE =
  "it requires a client certificate; name one with tls.certFile and tls.keyFile, TENURE_CERT_FILE and TENURE_KEY_FILE, or HOST_CERT_FILE and HOST_KEY_FILE";

/** What the client found wrong with the server's certificate: nothing was sent. */
const REJECTED: Readonly<Record<string, string>> = {
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNTRUSTED,
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  CERT_HAS_EXPIRED: "its certificate has expired",
  CERT_NOT_YET_VALID: "its certificate is not valid yet; compare the clocks",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is for other names than that of the URL",
  ERR_SSL_WRONG_VERSION_NUMBER: "it does not speak TLS at this port; try http://",
};
const REASONS: Readonly<Record<string, string>> = {
  ...REJECTED,
  ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED: NO_CERTIFICATE,
  ERR_SSL_TLSV1_ALERT_UNKNOWN_CA: "it does not accept the CA of the client certificate",
};

/** Explains a TLS error; undefined for any other. */
export function tlsReason(error: { code?: string; message?: string } | undefined) {
  const code = error?.code === "EPROTO" ? protocolCode(error.message ?? "") : error?.code;
  return code === undefined ? undefined : REASONS[code] && `${REASONS[code]} (${code})`;
}

/** Of a socket, in place of a request, Node gives OpenSSL's text without its code. */
const protocolCode = (message: string): string | undefined =>
  message.includes("wrong version number") ? "ERR_SSL_WRONG_VERSION_NUMBER" : undefined;

/** Whether the client closed the connection before it sent anything. */
export const isRejectedServer = (code: string | undefined): boolean =>
  code !== undefined && Object.hasOwn(REJECTED, code);
