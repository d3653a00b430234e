/**
 * node-postgres verifies the server's certificate and name for `require`, `prefer` and `verify-ca` as well as for `verify-full`, warns
 * in six lines that its next version will not, and does not then. Here they mean `verify-full`, as long as the URI does not
 * ask for the meanings of libpq.
 */
const LAX = /([?&]sslmode=)(prefer|require|verify-ca)(?=&|$)/;

export interface ExplicitUri {
  uri: string;
  /** The mode that was replaced by `verify-full`. */
  replaced: string | undefined;
}

/** Writes out what the `sslmode` of a URI means here. */
export function withExplicitSslMode(uri: string): ExplicitUri {
  const replaced = /[?&]uselibpqcompat=true(?=&|$)/.test(uri) ? undefined : LAX.exec(uri)?.[2];
  return { uri: replaced === undefined ? uri : uri.replace(LAX, "$1verify-full"), replaced };
}
