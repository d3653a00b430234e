/**
 * A run of the tests over TLS: `TENURE_TEST_TLS=1 npx vitest run …`. Every server that a test starts as a process gets a
 * certificate, and every process trusts its CA by `NODE_EXTRA_CA_CERTS`, the test files included: they start after the
 * global setup.
 *
 * `TENURE_TEST_TLS=mutual` also requires client certificates of nodes and instances. Node-units and instances get one by
 * their settings. Workers run in a test file or in a program of it: there every connection gets one that does not name a CA
 * itself, by a patch that is loaded before the program.
 */
const FILES = "TENURE_TEST_TLS_FILES";

interface RunFiles {
  ca: string;
  server: { certFile: string; keyFile: string };
  client: { certFile: string; keyFile: string };
  isMutual: boolean;
}

/** Settings of a server that stays without TLS in every run: its frames are counted on the way. */
export const PLAIN_SERVER = {
  TENURE_SERVER_TLS_CERT_FILE: "",
  TENURE_SERVER_TLS_KEY_FILE: "",
  TENURE_SERVER_TLS_CLIENT_CA_FILE: "",
  TENURE_SERVER_TLS_CA_FILE: "",
};

/** Called by the global setup; undefined for a run without TLS. */
export async function prepareTlsRun(): Promise<string | undefined> {
  const mode = process.env.TENURE_TEST_TLS;
  if (!mode) return undefined;
  // Not with the module: the programs of the fault suite import it beside an older commit, whose CLI makes no certificates.
  const { CLIENT, createTestCa } = await import("./certificates.ts");
  const ca = createTestCa("CA of this test run");
  const [server, client] = [ca.files("server"), ca.files("client", CLIENT)];
  const files: RunFiles = { ca: ca.caFile, server, client, isMutual: mode === "mutual" };
  process.env[FILES] = JSON.stringify(files);
  process.env.NODE_EXTRA_CA_CERTS = ca.caFile;
  if (files.isMutual) process.env.NODE_OPTIONS = withClientCertificate(client);
  return files.isMutual ? "mutual TLS" : "TLS";
}

/** What a process of a run over TLS gets in its environment; `command` is that of `tenure`. */
export function tlsRunEnvironment(command?: string): Record<string, string> {
  const text = process.env[FILES];
  if (!text) return {};
  const { ca, server, client, isMutual } = JSON.parse(text) as RunFiles;
  return {
    NODE_EXTRA_CA_CERTS: ca,
    // The programs of Tenure have settings for it.
    ...(isMutual && { NODE_OPTIONS: command ? "" : withClientCertificate(client) }),
    ...(command === "server" && {
      TENURE_SERVER_TLS_CERT_FILE: server.certFile,
      TENURE_SERVER_TLS_KEY_FILE: server.keyFile,
      ...(isMutual && { TENURE_SERVER_TLS_CLIENT_CA_FILE: ca, TENURE_SERVER_TLS_CA_FILE: ca }),
    }),
    ...(command === "node" &&
      isMutual && { HOST_CERT_FILE: client.certFile, HOST_KEY_FILE: client.keyFile }),
  };
}

function withClientCertificate({ certFile, keyFile }: RunFiles["client"]): string {
  const files = JSON.stringify([certFile, keyFile]);
  const patch = `import fs from "node:fs"; import tls from "node:tls"; import { syncBuiltinESMExports } from "node:module";
    const [cert, key] = ${files}.map((file) => fs.readFileSync(file)); const { connect } = tls;
    tls.connect = (...args) => {
      const at = args.findIndex((one) => one && typeof one === "object" && !Array.isArray(one));
      if (at >= 0 && !args[at].ca && !args[at].cert) args[at] = { ...args[at], cert, key };
      return connect(...args);
    };
    syncBuiltinESMExports();`;
  return `--import=data:text/javascript,${encodeURIComponent(patch)}`;
}
