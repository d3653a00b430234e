import { readFileSync } from "node:fs";

export interface User {
  uid: number;
  gid: number;
  name: string;
}

/** Postgres refuses to run as root. As root this gives the user to run it as, else undefined. */
export function unprivilegedUser(): User | undefined {
  if (process.getuid?.() !== 0) return undefined;
  return findUser("postgres") ?? findUser("nobody") ?? { uid: 65534, gid: 65534, name: "nobody" };
}

function findUser(name: string): User | undefined {
  const lines = readFileSync("/etc/passwd", "utf8").split("\n");
  const fields = lines.find((line) => line.startsWith(`${name}:`))?.split(":");
  return fields && { uid: Number(fields[2]), gid: Number(fields[3]), name };
}
