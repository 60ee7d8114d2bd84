import { Controller, Get, Inject } from '@nestjs/common';
import { ApiOperation, ApiTags } from '@nestjs/swagger';
import { ModelList } from '@sibyl/protocol';
import type { Models } from '../agent/model/models.js';
import { Public } from '../auth/public-routes.js';
import { ApiReply } from '../transport/api-reply.js';

/** The models are an interface, which Nest cannot ask for by class. */
export const MODELS = Symbol('models');

@Public()
@ApiTags('models')
@Controller('models')
export class ModelsController {
  constructor(@Inject(MODELS) private readonly models: Models) {}

  @Get()
  @ApiOperation({ summary: 'The models a message may ask for' })
  @ApiReply(ModelList)
  list(): ModelList {
    return this.models.list();
  }
}
