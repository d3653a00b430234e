import { Session, Worker } from "@tenure/sdk";
import { type Begun, POOL, type Run, type SubmitJob, type Timed } from "./drive.ts";

export function workForTenure(
  { url, capacity }: { url: string; capacity: number },
  run: Run,
): Promise<void> {
  return new Promise((ready) => {
    const take = ({ payload }: { payload: unknown }) => run(payload as Timed);
    new Worker({ url, pools: [POOL], capacity, run: take, on: { ready: () => ready() } });
  });
}

export function submitToTenure({ url, sessions }: { url: string; sessions: number }): SubmitJob {
  const all = Array.from({ length: sessions }, () => new Session({ url }));
  let next = 0;
  return async (payload) => {
    const session = all[next++ % all.length]!;
    return (await session.submit<Begun>({ pool: POOL, payload })).body;
  };
}
