import { Session, type TlsFiles, Worker } from "@tenure/sdk";
import { type Begun, POOL, type Run, type SubmitJob, type Timed } from "./drive.ts";

export function workForTenure(
  { url, tls, capacity }: { url: string; tls?: TlsFiles | undefined; capacity: number },
  run: Run,
): Promise<void> {
  return new Promise((ready) => {
    const take = ({ payload }: { payload: unknown }) => run(payload as Timed);
    new Worker({ url, tls, pools: [POOL], capacity, run: take, on: { ready: () => ready() } });
  });
}

export function submitToTenure({
  url,
  tls,
  sessions,
}: {
  url: string;
  tls?: TlsFiles | undefined;
  sessions: number;
}): SubmitJob {
  const all = Array.from({ length: sessions }, () => new Session({ url, tls }));
  let next = 0;
  return async (payload) => {
    const session = all[next++ % all.length]!;
    return (await session.submit<Begun>({ pool: POOL, payload })).body;
  };
}
