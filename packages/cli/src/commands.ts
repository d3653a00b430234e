import type { Command } from "commander";
import type { Context } from "./context.ts";

export interface CommandEntry {
  name: string;
  summary: string;
  load: () => Promise<(context: Context) => Command>;
}

/** Every command, in the order `--help` shows them. */
export const COMMANDS: readonly CommandEntry[] = [
  {
    name: "dev",
    summary: "run a demo fleet on this machine with embedded stores",
    load: async () => (await import("./commands/dev.ts")).devCommand,
  },
  {
    name: "server",
    summary: "run one server instance; prints its URL when ready",
    load: async () => (await import("./commands/server.ts")).serverCommand,
  },
  {
    name: "health",
    summary: "check that a server and its stores are ready",
    load: async () => (await import("./commands/health.ts")).healthCommand,
  },
  {
    name: "cluster",
    summary: "list instances and their stores",
    load: async () => (await import("./commands/cluster.ts")).clusterCommand,
  },
  {
    name: "deployment",
    summary: "list, apply, restart, roll back and explain deployments",
    load: async () => (await import("./commands/deployment.ts")).deploymentCommand,
  },
  {
    name: "job",
    summary: "submit, list, show, cancel and watch jobs",
    load: async () => (await import("./commands/job.ts")).jobCommand,
  },
  {
    name: "node",
    summary: "run a node-unit here; list, show, drain and resume nodes",
    load: async () => (await import("./commands/node.ts")).nodeCommand,
  },
  {
    name: "dlq",
    summary: "list, show, redrive and discard dead letters",
    load: async () => (await import("./commands/dlq.ts")).dlqCommand,
  },
  {
    name: "events",
    summary: "show and follow events",
    load: async () => (await import("./commands/events.ts")).eventsCommand,
  },
  {
    name: "audit",
    summary: "show who changed what",
    load: async () => (await import("./commands/audit.ts")).auditCommand,
  },
  {
    name: "token",
    summary: "create, list, rotate and revoke tokens",
    load: async () => (await import("./commands/token.ts")).tokenCommand,
  },
  {
    name: "secret",
    summary: "set, list, remove and rotate secrets",
    load: async () => (await import("./commands/secret.ts")).secretCommand,
  },
  {
    name: "signer",
    summary: "list signers, allocate and resolve nonces",
    load: async () => (await import("./commands/signer.ts")).signerCommand,
  },
  {
    name: "cert",
    summary: "make certificates to try TLS with",
    load: async () => (await import("./commands/cert.ts")).certCommand,
  },
];
