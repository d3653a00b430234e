import { type Admin, createAdmin, type TlsFiles, urlsOf } from "@tenure/sdk";
import { findDevToken } from "@tenure/sdk/dev-token";
import type { Command } from "commander";

export interface RemoteFlags {
  url: string;
  token?: string;
  json?: boolean;
  tenant?: string;
  caFile?: string;
  certFile?: string;
  keyFile?: string;
}

const URL_DEFAULT = "http://127.0.0.1:7070";

/** Adds the flags of every command that calls a running server. */
export function withServerFlags(command: Command): Command {
  return command
    .option(
      "--url <url>",
      "server URL, or several separated by commas (TENURE_URL)",
      process.env.TENURE_URL ?? URL_DEFAULT,
    )
    .option("--token <token>", "bearer token; prefer TENURE_TOKEN, flags show in the process list")
    .option("--ca-file <file>", "CA of the server, for a private one (TENURE_CA_FILE)")
    .option("--cert-file <file>", "client certificate (TENURE_CERT_FILE)")
    .option("--key-file <file>", "key of the client certificate (TENURE_KEY_FILE)")
    .option("--json", "print JSON instead of a table");
}

export function connect(flags: RemoteFlags): Admin {
  const urls = urlsOf(flags.url);
  const bad = urls.find((url) => !/^https?:\/\/./.test(url) || !URL.canParse(url));
  if (bad !== undefined || urls.length === 0)
    throw new Error(
      `"${bad ?? flags.url}" is not the URL of a server; expected a URL such as ${URL_DEFAULT}`,
    );
  return createAdmin({
    url: urls,
    token: tokenOf(flags),
    tenant: tenantOf(flags),
    tls: tlsOf(flags),
  });
}

/** The certificates of a command; undefined where Node's own CAs are enough. */
export function tlsOf(flags: RemoteFlags): TlsFiles | undefined {
  const { TENURE_CA_FILE, TENURE_CERT_FILE, TENURE_KEY_FILE } = process.env;
  const caFile = flags.caFile ?? TENURE_CA_FILE;
  const certFile = flags.certFile ?? TENURE_CERT_FILE;
  const keyFile = flags.keyFile ?? TENURE_KEY_FILE;
  const files = {
    ...(caFile && { caFile }),
    ...(certFile && { certFile }),
    ...(keyFile && { keyFile }),
  };
  return Object.keys(files).length > 0 ? files : undefined;
}

/** The tenant to act for, when the token is valid for all tenants. */
export function tenantOf({ tenant }: RemoteFlags): string | undefined {
  return tenant ?? process.env.TENURE_TENANT;
}

/** Returns the given token, or that of a `tenure dev` on this machine. */
export function tokenOf({ token, url }: RemoteFlags): string | undefined {
  return token ?? process.env.TENURE_TOKEN ?? findDevToken(url);
}
