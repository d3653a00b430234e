import { createServer } from "node:net";

// Below 32768, where Linux takes the ports of outgoing connections from: the port of a store that
// is stopped for a while must still be free when it comes back. A Redis Cluster node also listens
// on its port + 10000.
const lowest = 10_000;
const highest = 21_999;
const busOffset = 10_000;
const attemptsMax = 200;

const given = new Set<number>();

/** A loopback port that is free now, and was not given to anybody else by this process. */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    const port = lowest + Math.floor(Math.random() * (highest - lowest + 1));
    if (given.has(port)) continue;
    given.add(port);
    if ((await isFree(port)) && (await isFree(port + busOffset))) return port;
  }
  throw new Error(`none of ${attemptsMax} ports tried on 127.0.0.1 is free`);
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
