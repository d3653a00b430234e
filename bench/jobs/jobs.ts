import type { Bench } from "../bench.ts";
import { showCounts } from "./counts.ts";
import { showRates } from "./rates.ts";
import { showTls } from "./tls.ts";
import { showTwo } from "./two.ts";

export const jobs: Bench = {
  name: "jobs",
  summary: "submit → result through sockets: counts, and rates beside BullMQ and NATS JetStream",
  parts: ["counts", "throughput", "latency", "two", "tls"],
  async run(run) {
    const { part } = run;
    const wants = (name: string) => part === undefined || part === name;
    if (wants("counts")) await showCounts(run);
    if (wants("throughput") || wants("latency"))
      await showRates({ ...run, throughput: wants("throughput"), latency: wants("latency") });
    if (wants("two")) await showTwo(run);
    if (wants("tls")) await showTls(run);
  },
};
