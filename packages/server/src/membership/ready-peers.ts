import type { PeerFetch } from "../peers/peer-fetch.ts";

const ANSWER_WITHIN_MS = 1_000;

/** The URLs of the instances that report ready. Connections are sent only there. */
export async function readyUrls(
  instances: readonly { url: string }[],
  peerFetch: PeerFetch = fetch,
): Promise<string[]> {
  const answers = await Promise.all(
    instances.map(async ({ url }) => ((await isReady(url, peerFetch)) ? [url] : [])),
  );
  return answers.flat();
}

async function isReady(url: string, peerFetch: PeerFetch): Promise<boolean> {
  try {
    const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
    const { status, body } = await peerFetch(new URL("/health/ready", url), { signal });
    await body?.cancel();
    return status === 200;
  } catch {
    return false;
  }
}
