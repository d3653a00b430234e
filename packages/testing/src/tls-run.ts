import { createTestCa } from "./certificates.ts";

/**
 * A run of the tests over TLS: `TENURE_TEST_TLS=1 npx vitest run …`. Every server that a test starts as a process gets a
 * certificate, and every process trusts its CA by `NODE_EXTRA_CA_CERTS`, the test files included: they start after the
 * global setup.
 */
const NAMES = { cert: "TENURE_TEST_TLS_CERT", key: "TENURE_TEST_TLS_KEY" };

/** Called by the global setup. */
export function prepareTlsRun(): boolean {
  if (!process.env.TENURE_TEST_TLS) return false;
  const ca = createTestCa("CA of this test run");
  const pair = ca.files("server");
  process.env[NAMES.cert] = pair.certFile;
  process.env[NAMES.key] = pair.keyFile;
  process.env.NODE_EXTRA_CA_CERTS = ca.caFile;
  return true;
}

/** What a process of a run over TLS gets in its environment. */
export function tlsRunEnvironment(command?: string): Record<string, string> {
  const [cert, key] = [process.env[NAMES.cert], process.env[NAMES.key]];
  const { NODE_EXTRA_CA_CERTS } = process.env;
  if (!cert || !key || !NODE_EXTRA_CA_CERTS) return {};
  return {
    NODE_EXTRA_CA_CERTS,
    ...(command === "server" && {
      TENURE_SERVER_TLS_CERT_FILE: cert,
      TENURE_SERVER_TLS_KEY_FILE: key,
    }),
  };
}
