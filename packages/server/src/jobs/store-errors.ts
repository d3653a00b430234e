import { isTenureError } from "@tenure/protocol";
import type { Log, LogFields } from "../kernel/log.ts";

/** The store did not answer, and the outcome of the call is unknown. The next try or the recovery worker finds it out. */
export const isStoreDown = (error: unknown): boolean => isTenureError(error, "DEPENDENCY_DOWN");

/** An error handler that logs bugs only: while the store is down, the caller or the recovery worker retries. */
export const logUnlessStoreDown =
  (log: Log, fields: LogFields, message: string) =>
  (error: unknown): void => {
    if (!isStoreDown(error)) log.error({ ...fields, error }, message);
  };
