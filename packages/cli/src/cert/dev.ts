import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { hostname, networkInterfaces } from "node:os";
import { join } from "node:path";
import { createCa, issue, type Pair } from "./certificate.ts";

export interface DevCertOptions {
  directory: string;
  /** Names and addresses beside those of this machine. */
  hosts: readonly string[];
  days: number;
  /** Replaces a CA that is there, and with it the trust of everything that knows it. */
  force: boolean;
  /** Issues new certificates under the CA that is there. */
  renew: boolean;
}

const CA_DAYS = 3650;
const DAY_MS = 86_400_000;
const PAIRS = ["ca", "server", "client"] as const;
type PairName = (typeof PAIRS)[number];

/** The files of a pair: `server.pem` and `server-key.pem`. */
export const pathsOf = (directory: string, name: PairName): Pair => ({
  cert: join(directory, `${name}.pem`),
  key: join(directory, `${name}-key.pem`),
});

/** Writes a private CA, a certificate of a server and one of a client. Returns the hosts of the server's. */
export function writeDevCerts(options: DevCertOptions): string[] {
  const { directory, force, renew } = options;
  const files = PAIRS.flatMap((name) => Object.values(pathsOf(directory, name)));
  const present = files.filter((path) => existsSync(path));
  if (present.length > 0 && !force && !renew)
    throw new Error(
      `${present[0]} exists; --renew issues new certificates under the CA that is there, --force replaces the CA too`,
    );
  const ca = renew ? readPair(pathsOf(directory, "ca")) : newCa();
  const until = new Date(Date.now() + options.days * DAY_MS);
  const hosts = [...new Set([...ownHosts(), ...options.hosts])];
  // Instances show the server's certificate to each other, so it is a client's as well.
  const server = issue(ca, { name: "tenure server", hosts, usages: ["server", "client"], until });
  const client = issue(ca, { name: "tenure client", usages: ["client"], until });
  mkdirSync(directory, { recursive: true, mode: 0o755 });
  const write = (name: PairName, pair: Pair) => writePair(pathsOf(directory, name), pair);
  if (!renew) write("ca", ca);
  write("server", server);
  write("client", client);
  return hosts;
}

const newCa = (): Pair =>
  createCa(
    `Tenure development CA of ${hostname()}`.slice(0, 64),
    new Date(Date.now() + CA_DAYS * DAY_MS),
  );

function readPair(paths: Pair): Pair {
  try {
    return { cert: readFileSync(paths.cert, "utf8"), key: readFileSync(paths.key, "utf8") };
  } catch (error) {
    throw new Error(`--renew needs the CA that is there: ${(error as Error).message}`);
  }
}

/** The key first: between the two a server that reads the files finds a pair that does not match and keeps its own. */
function writePair(paths: Pair, { cert, key }: Pair): void {
  replace(paths.key, key, 0o600);
  replace(paths.cert, cert, 0o644);
}

/** By a rename, so that no reader finds half a file, and none keeps the mode of a former one. */
function replace(path: string, text: string, mode: number): void {
  const temporary = `${path}.${process.pid}`;
  writeFileSync(temporary, text, { mode, flag: "wx" });
  chmodSync(temporary, mode);
  renameSync(temporary, path);
}

function ownHosts(): string[] {
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  // A link-local address has a zone, which no certificate can name.
  const reachable = addresses.filter(({ address }) => !/^fe80:/i.test(address));
  return [
    ...new Set([
      ...["localhost", "127.0.0.1", "::1", hostname().toLowerCase()],
      ...reachable.map(({ address }) => address),
    ]),
  ];
}
