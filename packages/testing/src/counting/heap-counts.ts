import { GCProfiler, getHeapStatistics } from "node:v8";

export interface HeapCounts {
  /** Bytes of JavaScript objects. Memory outside the heap, as of large buffers, is not in it. */
  allocatedBytes: number;
  collections: number;
}

/**
 * Counts the bytes this process allocates until the returned function is called: the heap only grows by allocations and
 * only shrinks in a collection, and V8 reports its size before and after each one.
 */
export function countAllocations(): () => HeapCounts {
  const profiler = new GCProfiler();
  profiler.start();
  let sizeBytes = getHeapStatistics().used_heap_size;
  return () => {
    const endBytes = getHeapStatistics().used_heap_size;
    const { statistics } = profiler.stop();
    let allocatedBytes = 0;
    for (const { beforeGC, afterGC } of statistics) {
      allocatedBytes += beforeGC.heapStatistics.usedHeapSize - sizeBytes;
      sizeBytes = afterGC.heapStatistics.usedHeapSize;
    }
    allocatedBytes += endBytes - sizeBytes;
    return { allocatedBytes, collections: statistics.length };
  };
}
