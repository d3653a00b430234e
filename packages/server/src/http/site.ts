import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import type { FastifyReply, FastifyRequest } from "fastify";

export interface Site {
  /** Answers a request for a page or a file of the console; `false` when it is neither. */
  answer(request: FastifyRequest, reply: FastifyReply): boolean;
}

interface SiteFile {
  type: string;
  bytes: Buffer;
  zipped: Buffer | undefined;
  etag: string;
  cacheControl: string;
}

/** The same directory, seen from the sources and from the build. */
const DIRECTORY = fileURLToPath(new URL("../../../console/dist/site", import.meta.url));
const INDEX = "/index.html";

/** The built console. Its few files are read once, at start. */
export function openSite(directory = DIRECTORY): Site {
  const files = readFiles(directory);
  const index = files.get(INDEX) ?? unbuilt;

  function find(path: string, accepts: string): SiteFile | undefined {
    if (path === "/") return index;
    const file = files.get(path);
    // A request for any other page, by a link or a reload, gets the console: it routes by the address itself.
    return file ?? (accepts.includes("text/html") && !isElsewhere(path) ? index : undefined);
  }

  return {
    answer(request, reply) {
      if (!["GET", "HEAD"].includes(request.method)) return false;
      const file = find(request.url.split("?")[0] ?? "", request.headers.accept ?? "");
      if (file) send(file, request, reply);
      return file !== undefined;
    },
  };
}

/** Paths that never get the page: an unknown API route, and an asset of another build. */
const isElsewhere = (path: string): boolean =>
  /^\/(api|assets|health|metrics|openapi\.json|ws)(\/|$)/.test(path);

/**
 * Scripts and styles load from this server only, nothing is inline, and the page may not be framed: text from a node that
 * slipped through as HTML would not run.
 */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join("; ");

function send(file: SiteFile, request: FastifyRequest, reply: FastifyReply): void {
  reply.headers({
    "content-type": file.type,
    "cache-control": file.cacheControl,
    etag: file.etag,
    vary: "accept-encoding",
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
  });
  if (request.headers["if-none-match"] === file.etag) {
    reply.code(304).send();
    return;
  }
  const zipped = /\bgzip\b/.test(request.headers["accept-encoding"] ?? "")
    ? file.zipped
    : undefined;
  if (zipped) reply.header("content-encoding", "gzip");
  reply.code(200).send(zipped ?? file.bytes);
}

function readFiles(directory: string): Map<string, SiteFile> {
  if (!existsSync(directory)) return new Map();
  const names = readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
  return new Map(
    names.map((name) => [
      name.slice(directory.length),
      fileOf(name.slice(directory.length), readFileSync(name)),
    ]),
  );
}

const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".txt": "text/plain; charset=utf-8",
};

function fileOf(path: string, bytes: Buffer): SiteFile {
  const type = TYPES[extname(path)] ?? "application/octet-stream";
  const zipped = /^text|svg/.test(type) ? gzipSync(bytes, { level: 9 }) : undefined;
  // File names in assets/ contain a hash of the content; the page that names them must be revalidated.
  const cacheControl = path.startsWith("/assets/")
    ? "public, max-age=31536000, immutable"
    : "no-cache";
  const etag = `"${createHash("sha256").update(bytes).digest("base64url").slice(0, 22)}"`;
  return { type, bytes, zipped, etag, cacheControl };
}

const unbuilt = fileOf(
  INDEX,
  Buffer.from(
    "<!doctype html><title>Tenure</title><p>The console is not built. Run: npm run build\n",
  ),
);
