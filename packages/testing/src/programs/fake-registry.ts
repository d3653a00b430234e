import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { integrityOf, packTarball, type TarFile } from "./tarball.ts";

export interface PublishedPackage {
  name: string;
  version: string;
  files: Readonly<Record<string, string | TarFile>>;
  /** Besides name and version. */
  manifest?: Readonly<Record<string, unknown>>;
  /** What is wrong with its tarball: it breaks off half-way, or never comes. */
  tarball?: "broken" | "hanging";
}

/** As much of an npm registry as `npm install` asks for, on loopback. */
export interface FakeRegistry {
  url: string;
  publish(published: PublishedPackage): void;
  /** Paths that were asked for, in order. */
  requests: string[];
  close(): Promise<void>;
}

export async function startFakeRegistry(): Promise<FakeRegistry> {
  const packages = new Map<string, Map<string, Published>>();
  const requests: string[] = [];
  const server = createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url ?? "/", "http://x").pathname).slice(1);
    requests.push(path);
    const [name = "", file] = path.split("/-/");
    if (file === undefined)
      return sendPackument(response, { name, versions: packages.get(name), url });
    const found = [...(packages.get(name)?.values() ?? [])].find(
      (published) => published.file === file,
    );
    sendTarball(response, found);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  return {
    url,
    requests,
    publish({ name, version, files, manifest = {}, tarball }) {
      const complete = { name, version, ...manifest };
      const bytes = packTarball({ "package.json": JSON.stringify(complete), ...files });
      const file = `${name.replace(/^.*\//, "")}-${version}.tgz`;
      const versions = packages.get(name) ?? new Map<string, Published>();
      packages.set(name, versions.set(version, { manifest: complete, bytes, file, tarball }));
    },
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

interface Published {
  manifest: Readonly<Record<string, unknown>>;
  bytes: Buffer;
  file: string;
  tarball: PublishedPackage["tarball"];
}

function sendPackument(
  response: ServerResponse,
  {
    name,
    versions,
    url,
  }: { name: string; versions: Map<string, Published> | undefined; url: string },
): void {
  if (!versions) {
    response.writeHead(404, { "content-type": "application/json" }).end('{"error":"Not found"}');
    return;
  }
  const entries = [...versions].map(([version, { manifest, bytes, file }]) => {
    const dist = { tarball: `${url}/${name}/-/${file}`, integrity: integrityOf(bytes) };
    return [version, { ...manifest, dist }] as const;
  });
  const latest = entries.at(-1)?.[0];
  response.writeHead(200, { "content-type": "application/json" });
  response.end(
    JSON.stringify({ name, "dist-tags": { latest }, versions: Object.fromEntries(entries) }),
  );
}

function sendTarball(response: ServerResponse, found: Published | undefined): void {
  if (!found) {
    response.writeHead(404).end();
    return;
  }
  if (found.tarball === "hanging") return;
  response.writeHead(200, { "content-length": found.bytes.length });
  if (found.tarball === "broken") {
    response.write(found.bytes.subarray(0, found.bytes.length / 2), () => response.destroy());
    return;
  }
  response.end(found.bytes);
}
