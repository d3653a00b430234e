import type { AgentConfig } from "./config.ts";

/** The certificates of every connection to a server. */
export function tlsOf({
  host_ca_file,
  host_cert_file,
  host_key_file,
}: Pick<AgentConfig, "host_ca_file" | "host_cert_file" | "host_key_file">) {
  if (host_ca_file === undefined && host_cert_file === undefined) return undefined;
  return { caFile: host_ca_file, certFile: host_cert_file, keyFile: host_key_file };
}
