import { join } from "node:path";
import { Command } from "commander";
import { pathsOf, writeDevCerts } from "../cert/dev.ts";
import type { Context } from "../context.ts";
import { count } from "../numbers.ts";

interface Flags {
  host: string[];
  days: number;
  force: boolean;
  renew: boolean;
}

/** `tenure cert dev`: a private CA and certificates to try TLS with. */
export function certCommand(_context: Context): Command {
  const cert = new Command();
  cert
    .command("dev [directory]")
    .description(
      "make a private CA and certificates of a server and a client, to try TLS (default: certs)",
    )
    .option(
      "--host <name...>",
      "names and addresses of the server, beside those of this machine",
      [],
    )
    .option("--days <number>", "validity of the two certificates", count, 90)
    .option("--renew", "issue new certificates under the CA that is there", false)
    .option("--force", "replace the CA too", false)
    .action((directory: string | undefined, flags: Flags) => {
      const options = { ...flags, hosts: flags.host, directory: directory ?? "certs" };
      const hosts = writeDevCerts(options);
      process.stdout.write(`${text(options.directory, hosts)}\n`);
    });
  return cert;
}

function text(directory: string, hosts: readonly string[]): string {
  const [ca, server, client] = (["ca", "server", "client"] as const).map((name) =>
    pathsOf(directory, name),
  );
  return [
    `wrote ${directory}: CA, server (${hosts.join(", ")}), client`,
    "",
    "  server, in tenure.toml:",
    "    [server.tls]",
    `    cert_file = "${server?.cert}"`,
    `    key_file = "${server?.key}"`,
    `    ca_file = "${ca?.cert}"`,
    "    # for mutual TLS:",
    `    # client_ca_file = "${ca?.cert}"`,
    "",
    "  commands:",
    `    TENURE_URL=https://localhost:7070 TENURE_CA_FILE=${ca?.cert} tenure health`,
    "  node-unit:",
    `    HOST_URL=https://localhost:7070 HOST_CA_FILE=${ca?.cert} \\`,
    `    HOST_CERT_FILE=${client?.cert} HOST_KEY_FILE=${client?.key} tenure node run`,
    "",
    `  ${join(directory, "ca-key.pem")} can sign a certificate for any name: use it for trials only.`,
  ].join("\n");
}
