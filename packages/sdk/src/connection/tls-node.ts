import { readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import { TenureError } from "@tenure/protocol";
import type { Fetch, TlsFiles } from "./tls.ts";

interface Pem {
  ca?: string;
  cert?: string;
  key?: string;
}

const NAMES = { ca: "caFile", cert: "certFile", key: "keyFile" } as const;
const CONNECT_LIMIT_MS = 10_000;

/** Reads the files for one connection. */
export function readTls(files: TlsFiles): Pem {
  const pem: Pem = {};
  for (const [name, option] of Object.entries(NAMES) as [keyof Pem, keyof TlsFiles][]) {
    const path = files[option];
    if (path !== undefined) pem[name] = textOf(option, path);
  }
  return pem;
}

/** Throws for files that cannot be used, so that a mistake is found before the first connection. */
export function checkTls(files: TlsFiles): void {
  if ((files.certFile === undefined) !== (files.keyFile === undefined))
    throw invalid("tls.certFile and tls.keyFile: expected both or neither");
  const pem = readTls(files);
  try {
    createSecureContext(pem);
  } catch (error) {
    throw invalid(`tls: the files cannot be used: ${(error as Error).message}`);
  }
}

/** A `fetch` that makes its connections with these files. */
export function openFetch(files: TlsFiles | undefined): Fetch {
  if (!files) return (url, init) => fetch(url, init);
  checkTls(files);
  let opening: ReturnType<typeof openClient> | undefined;
  return async (url, init) => {
    opening ??= openClient(files);
    const { dispatcher, fetchWith } = await opening;
    const request = { ...init, dispatcher } as Parameters<typeof fetchWith>[1];
    return (await fetchWith(url, request)) as unknown as Response;
  };
}

/** Loaded when it is needed: the global `fetch` of Node is the same library, and cannot be given a CA. */
async function openClient(files: TlsFiles) {
  const { Agent, buildConnector, fetch: fetchWith } = await import("undici");
  const connect: ReturnType<typeof buildConnector> = (options, done) =>
    buildConnector({ ...readTls(files), timeout: CONNECT_LIMIT_MS })(options, done);
  return { dispatcher: new Agent({ connect }), fetchWith };
}

function textOf(option: keyof TlsFiles, path: string): string {
  const text = readText(option, path);
  // An empty CA would mean the CAs that Node trusts.
  if (!text.includes("-----BEGIN ")) throw invalid(`tls.${option} names a file that is not PEM`);
  return text;
}

function readText(option: keyof TlsFiles, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw invalid(`tls.${option} names a file that cannot be read (${code})`);
  }
}

const invalid = (reason: string): TenureError => new TenureError("INVALID_REQUEST", { reason });
