/**
 * Whether the peer could not be reached, or the connection to it broke: an error of a socket, of a name lookup, of TLS or
 * of `fetch`. It is never a bug of the caller, and the outcome of the request is unknown.
 */
export function isConnectionError(error: unknown): error is Error {
  if (!(error instanceof Error)) return false;
  const { code, syscall } = error as NodeJS.ErrnoException;
  // Any reason a socket cannot connect, including EPERM of a local firewall and EMFILE.
  if (syscall === "connect" || syscall === "getaddrinfo") return true;
  if (typeof code === "string" && NETWORK.test(code)) return true;
  if (error.name === "TimeoutError") return true;
  // Node tries all addresses of a name, and reports what went wrong with each of them.
  if (error instanceof AggregateError) return error.errors.some(isConnectionError);
  return isConnectionError(error.cause);
}

const NETWORK = new RegExp(
  `^(${[
    "E(CONN\\w+|PIPE|HOST\\w+|NET\\w+|TIMEDOUT|AI_\\w+|NOTFOUND|ADDRNOTAVAIL|NOBUFS|MFILE|NFILE)",
    "ERR_(SOCKET|STREAM|TLS|SSL)_\\w+",
    "UND_ERR_\\w+",
    "(CERT|UNABLE_TO|DEPTH_ZERO|SELF_SIGNED|HOSTNAME_MISMATCH)\\w*",
  ].join("|")})$`,
);

/** The reason of a connection error in one line. Skips wrappers such as `fetch failed`, whose cause has the reason. */
export function reasonOfConnectionError(error: Error): string {
  const inner = error instanceof AggregateError ? error.errors[0] : error.cause;
  if (inner instanceof Error && isConnectionError(inner)) return reasonOfConnectionError(inner);
  const { code } = error as NodeJS.ErrnoException;
  if (code !== undefined && UNTRUSTED.test(code))
    return `its certificate is not signed by a trusted CA (${code})`;
  return error.message || String(code ?? error.name);
}

/** OpenSSL's messages for it, such as "unable to verify the first certificate", name no remedy. */
const UNTRUSTED =
  /^(UNABLE_TO_VERIFY_LEAF_SIGNATURE|UNABLE_TO_GET_ISSUER_CERT(_LOCALLY)?|SELF_SIGNED_CERT_IN_CHAIN|DEPTH_ZERO_SELF_SIGNED_CERT)$/;
