import { TenureError } from "@tenure/protocol";
import { createJobRows } from "../src/jobs/rows/job-rows.ts";

const refuse = (): Promise<never> => {
  const details = { dependency: "Postgres", reason: "this instance has none" };
  return Promise.reject(new TenureError("DEPENDENCY_DOWN", details));
};

/** Rows of an instance without a database: durable jobs are refused. */
export const NO_ROWS = createJobRows({ query: refuse, transaction: refuse, script: refuse });
