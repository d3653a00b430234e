/**
 * SQLSTATEs that mean "not now", or "not with these settings": classes 08 (connection), 28 and 3D (refused at connect), 53
 * (resources, also a full disk), 57P (shutdown), 58 (the server's own disk), 25006 (read only: a standby).
 */
const UNAVAILABLE = /^(08...|28...|3D...|53...|57P..|58...|25006)$/;

export const isUnavailable = (sqlState: string | undefined): boolean =>
  UNAVAILABLE.test(sqlState ?? "");
