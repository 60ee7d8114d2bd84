import { SetMetadata } from '@nestjs/common';

export const PUBLIC_ROUTE = Symbol('public route');

/** Opens a controller or handler to callers without a UCAN. */
export const Public = () => SetMetadata(PUBLIC_ROUTE, true);
