import { SetMetadata } from '@nestjs/common';

export const PUBLIC_ROUTE = Symbol('public route');

/** Opens a controller or handler to callers without a UCAN. */
export const Public = () => SetMetadata(PUBLIC_ROUTE, true);

export const OPEN_TO_UNINVITED = Symbol('open to uninvited callers');

/** Opens a protected handler to proven callers whom CALLERS_ALLOW does not admit. */
export const OpenToUninvited = () => SetMetadata(OPEN_TO_UNINVITED, true);
