/** The jobs about which a node has reported something that is not in the record yet, with the number of batches. */
export interface PendingReports {
  has(jobId: string): boolean;
  add(jobId: string): void;
  remove(jobId: string): void;
}

export function createPendingReports(): PendingReports {
  const batches = new Map<string, number>();
  return {
    has: (jobId) => batches.has(jobId),
    add: (jobId) => void batches.set(jobId, (batches.get(jobId) ?? 0) + 1),
    remove(jobId) {
      const left = (batches.get(jobId) ?? 0) - 1;
      if (left <= 0) batches.delete(jobId);
      else batches.set(jobId, left);
    },
  };
}
