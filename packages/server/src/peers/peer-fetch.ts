import { type Pem, PemFiles, type PemPaths } from "../kernel/pem-files.ts";

export type PeerFetch = (url: URL, init: RequestInit) => Promise<Response>;

/**
 * Opens the `fetch` of calls between instances. With certificates of its own each new connection reads them again, so that
 * they can be replaced while this process runs. Throws a `PemProblem`.
 */
export function openPeerFetch(paths: PemPaths): PeerFetch {
  if (!paths.ca && !paths.cert) return fetch;
  const files = new PemFiles(paths);
  let opening: ReturnType<typeof openClient> | undefined;
  return async (url, init) => {
    opening ??= openClient(files);
    const { dispatcher, fetchWith } = await opening;
    const request = { ...init, dispatcher } as Parameters<typeof fetchWith>[1];
    return (await fetchWith(url, request)) as unknown as Response;
  };
}

/** Loaded when it is needed: the global `fetch` of Node is the same library, and cannot be given a CA. */
async function openClient(files: PemFiles) {
  const { Agent, buildConnector, fetch: fetchWith } = await import("undici");
  const connect: ReturnType<typeof buildConnector> = (options, done) =>
    buildConnector({ ...given(files.newest()), timeout: CONNECT_LIMIT_MS })(options, done);
  return { dispatcher: new Agent({ connect }), fetchWith };
}

const CONNECT_LIMIT_MS = 10_000;

/** `ca: undefined` means the CAs that Node trusts. */
const given = ({ ca, cert, key }: Pem) => ({
  ...(ca !== undefined && { ca }),
  ...(cert !== undefined && { cert, key }),
});
