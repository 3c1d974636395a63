"""Fields of vLLM's configuration and environment variables on which no weights depend, or that the
key has already. All others count: see `gpuwm.vllm.arguments` and `gpuwm.vllm.variables`.

The tables were made by reading the configurations and vllm/envs.py of vLLM 0.25.1 to 0.33.0.
"""

from __future__ import annotations

# Globs of CLASS.FIELD. Those of `arguments.COUNTS` count even if a glob matches them.
FIELDS = (
    # configurations of which nothing concerns weights
    *("VllmConfig.scheduler_config", "VllmConfig.structured_outputs_config"),
    *("VllmConfig.observability_config", "VllmConfig.profiler_config", "VllmConfig.logging_config"),
    *("VllmConfig.kv_transfer_config", "VllmConfig.kv_events_config", "VllmConfig.instance_id"),
    *("VllmConfig.ec_transfer_config", "VllmConfig.ec_manager_config", "VllmConfig.reasoning_*"),
    *("VllmConfig.weight_transfer_config", "VllmConfig.shutdown_timeout", "VllmConfig.watch*"),
    *("VllmConfig.watermark_config", "VllmConfig.aux_output_config"),
    *("VllmConfig.optimization_level", "VllmConfig.performance_mode"),
    # configurations that the key has as a whole
    *("VllmConfig.quant_config", "VllmConfig.attention_config", "ModelConfig.pooler_config"),
    # the model: what has a field of its own, or is a part of the model's configuration
    *("ModelConfig.model", "ModelConfig.model_weights", "ModelConfig.runner"),
    *("ModelConfig.convert", "ModelConfig.dtype", "ModelConfig.hf_*", "ModelConfig.quantization"),
    *("ModelConfig.quantization_config", "ModelConfig.allow_deprecated_quantization"),
    *("ModelConfig.model_class_overrides", "ModelConfig.model_impl", "ModelConfig.config_format"),
    *("ModelConfig.revision", "ModelConfig.code_revision", "ModelConfig.trust_remote_code"),
    *("ModelConfig.word_embeddings_untied_by_checkpoint", "ModelConfig.is_submodel_config"),
    # the model: limits, requests and answers
    *("ModelConfig.tokenizer*", "ModelConfig.skip_tokenizer_init", "ModelConfig.seed"),
    *("ModelConfig.max_model_len", "ModelConfig.spec_target_max_model_len"),
    *("ModelConfig.allowed_*", "ModelConfig.enforce_eager", "ModelConfig.max_logprobs"),
    *("ModelConfig.enable_return_routed_experts", "ModelConfig.logprobs_mode"),
    *("ModelConfig.use_fp64_gumbel", "ModelConfig.disable_cascade_attn"),
    *("ModelConfig.served_model_name", "ModelConfig.generation_config"),
    *("ModelConfig.override_generation_config", "ModelConfig.logits_processors"),
    *("ModelConfig.io_processor_plugin", "ModelConfig.renderer_num_workers"),
    *("ModelConfig.return_sampling_mask", "ModelConfig.enable_trace_replay"),
    # the model: sleep mode, in which shared weights do not take part
    *("ModelConfig.enable_sleep_mode", "ModelConfig.sleep_mode_*"),
    *("ModelConfig.enable_cumem_allocator", "ModelConfig.enable_nccl_comm_suspend"),
    "ModelConfig.sleep_preserve_parameter_names",  # it is refused
    # images, audio and video
    *("MultiModalConfig.language_model_only", "MultiModalConfig.limit_per_prompt"),
    *("MultiModalConfig.mm_encoder_*", "MultiModalConfig.video_pruning_rate"),
    *("MultiModalConfig.enable_mm_embeds", "MultiModalConfig.media_io_kwargs"),
    *("MultiModalConfig.mm_processor_*", "MultiModalConfig.mm_shm_*"),
    *("MultiModalConfig.interleave_mm_strings", "MultiModalConfig.skip_mm_profiling"),
    *("MultiModalConfig.mm_tensor_ipc", "MultiModalConfig.mm_ipc_gpu_memory_gb"),
    *("MultiModalConfig.mm_hasher_algorithm", "MultiModalConfig.mm_device_do_normalize"),
    "MultiModalConfig.allow_missing_mm_embeddings",
    # the KV cache: the key has its dtype, and the block size that a user chose
    *("CacheConfig.*block_size*", "CacheConfig.gpu_memory_utilization", "CacheConfig.cache_dtype"),
    *("CacheConfig.is_attention_free", "CacheConfig.num_?pu_blocks*", "CacheConfig.sliding_window"),
    *("CacheConfig.enable_prefix_caching", "CacheConfig.prefix_*", "CacheConfig.kv_*"),
    *("CacheConfig.calculate_kv_scales", "CacheConfig.*_page_size_padded"),
    *("CacheConfig.mamba_cache_mode", "CacheConfig.enable_mamba_*prefix_*"),
    *("CacheConfig.replayssm_buffer_len", "CacheConfig.swa_bounded_replay"),
    *("CacheConfig.cache_hit_alignment_tokens", "CacheConfig.simple_cpu_offload_num_blocks"),
    # ranks: the key has the sizes, and this rank's position
    *("ParallelConfig.*_parallel_size", "ParallelConfig.data_parallel_*", "ParallelConfig.is_moe*"),
    *("ParallelConfig.enable_expert_parallel", "ParallelConfig.expert_placement_strategy"),
    *("ParallelConfig.all2all_backend", "ParallelConfig.cp_kv_cache_interleave_size"),
    *("ParallelConfig.dcp_kv_cache_interleave_size", "ParallelConfig.enable_dbo"),
    *("ParallelConfig.enable_ep_weight_filter", "ParallelConfig.max_parallel_loading_workers"),
    *("ParallelConfig.enable_eplb", "ParallelConfig.eplb_config"),  # refused
    *("ParallelConfig.enable_elastic_ep", "ParallelConfig.elastic_ep_*"),  # refused
    *("ParallelConfig.ubatch_size", "ParallelConfig.dbo_*", "ParallelConfig.dp_sync_interval"),
    *("ParallelConfig.disable_custom_all_reduce", "ParallelConfig.disable_nccl_for_*"),
    *("ParallelConfig.ray_*", "ParallelConfig.placement_group", "ParallelConfig.*worker_cls"),
    *("ParallelConfig.distributed_executor_backend", "ParallelConfig.worker_extension_cls"),
    *("ParallelConfig.master_*", "ParallelConfig.node_rank", "ParallelConfig.nnodes"),
    *("ParallelConfig.numa_*", "ParallelConfig.assigned_physical_gpu_ids"),
    *("ParallelConfig.*distributed_timeout_seconds", "ParallelConfig.world_size"),
    *("ParallelConfig.rank", "ParallelConfig._data_parallel_*", "ParallelConfig._coord_*"),
    *("ParallelConfig._api_process_*", "ParallelConfig._allow_auto_resolve_*"),
    *("ParallelConfig.*fault_tolerance*", "ParallelConfig.enable_shm_tensor_arena"),
    # where the checkpoint is, and how its files are read
    *("LoadConfig.load_format", "LoadConfig.download_dir", "LoadConfig.safetensors_*"),
    *("LoadConfig.model_loader_extra_config", "LoadConfig.device", "LoadConfig.ignore_patterns"),
    *("LoadConfig.use_tqdm_on_load", "LoadConfig.pt_load_map_location"),
    *("DeviceConfig.device", "DeviceConfig.device_type"),
    # kernels: the key has the backends; the others compute what is no weight, or are warmed up
    *("KernelConfig.linear_backend", "KernelConfig.moe_backend", "KernelConfig.ir_op_priority"),
    *("KernelConfig.enable_flashinfer_autotune", "KernelConfig.enable_*_warmup"),
    "KernelConfig.enable_rocm_segmented_attn_autotune",
    # how the model's code is compiled, and its graphs are captured
    *("CompilationConfig.mode", "CompilationConfig.debug_dump_path", "CompilationConfig.*cache_*"),
    *("CompilationConfig.backend", "CompilationConfig.*custom_ops", "CompilationConfig.ir_*"),
    *("CompilationConfig.splitting_ops", "CompilationConfig.compile_*"),
    *("CompilationConfig.*graph*", "CompilationConfig.inductor_*"),
    "CompilationConfig.pass_config",
    *("CompilationConfig.dynamic_shapes_config", "CompilationConfig.fast_moe_cold_start"),
    *("CompilationConfig.traced_files", "CompilationConfig.*compilation_time"),
    *("CompilationConfig.static_*", "CompilationConfig.decoder_replay_*"),
    # adapters lie beside the weights; the key says whether there are any
    *("LoRAConfig.max_*", "LoRAConfig.fully_sharded_loras", "LoRAConfig.lora_dtype"),
    *("LoRAConfig.target_modules", "LoRAConfig.default_mm_loras", "LoRAConfig.enable_*lora*"),
    *("LoRAConfig.specialize_active_lora",),
    # offloading is refused
    *("OffloadConfig.offload_backend", "OffloadConfig.uva", "OffloadConfig.prefetch"),
    # a draft is a version of its own: see `arguments.OF_DRAFT`
    *("SpeculativeConfig.enforce_eager", "SpeculativeConfig.num_speculative_tokens*"),
    *("SpeculativeConfig.model", "SpeculativeConfig.*revision", "SpeculativeConfig.quantization"),
    *("SpeculativeConfig.max_model_len", "SpeculativeConfig.disable_*"),
    *("SpeculativeConfig.prompt_lookup_*", "SpeculativeConfig.target_*"),
    *("SpeculativeConfig.draft_model_config", "SpeculativeConfig.draft_parallel_config"),
    *("SpeculativeConfig.draft_load_config", "SpeculativeConfig.draft_sample_method"),
    *("SpeculativeConfig.suffix_decoding_*", "SpeculativeConfig.rejection_sample_method"),
    *("SpeculativeConfig.synthetic_*", "SpeculativeConfig.tensor_parallel_size"),
    *("SpeculativeConfig.enable_adaptive_verification", "SpeculativeConfig.dspark_draft_topk"),
    *("SpeculativeConfig.xpress_topc", "SpeculativeConfig.fly_*"),
)

# Globs of environment variables. Those of `variables.LAYOUT` count even if a glob matches them.
VARIABLES = (
    # builds, files, and what people see
    *("CMAKE_BUILD_TYPE", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "*_COLOR", "LD_LIBRARY_PATH"),
    *("LOCAL_RANK", "MAX_JOBS", "NVCC_THREADS", "S3_*", "VERBOSE", "MOONCAKE_*", "VLLM_BUILD_*"),
    *("VLLM_DOCKER_*", "VLLM_IMAGE_TAG", "VLLM_MAIN_CUDA_VERSION", "VLLM_SKIP_*"),
    *("VLLM_CUDA*_PATH", "VLLM_NCCL_*_PATH", "VLLM_USE_PRECOMPILED*", "VLLM_TARGET_DEVICE"),
    *("VLLM_*_CACHE", "VLLM_*_CACHE_DIR", "VLLM_XLA_*", "VLLM_TPU_*", "VLLM_*_ROOT"),
    *("VLLM_ASSETS_*", "VLLM_CI_*", "VLLM_CPU_CI_ENV", "VLLM_TUNED_CONFIG_FOLDER"),
    *("VLLM_ENABLE_CUDA_COMPATIBILITY",),
    # which model: the key has the identity of the checkpoint and the model that vLLM builds
    *("VLLM_MODEL_REDIRECT_PATH", "VLLM_USE_MODELSCOPE", "VLLM_PLUGINS", "VLLM_LORA_RESOLVER_*"),
    *("VLLM_TEST_FORCE_LOAD_FORMAT", "VLLM_FASTSAFETENSORS_QUEUE_SIZE"),
    # logs, figures, processes and addresses
    *("VLLM_*LOG_*", "VLLM_LOGGING_*", "VLLM_*DEBUG*", "VLLM_TRACE_*", "VLLM_*_FOR_PROFILING"),
    *("VLLM_*USAGE_*", "VLLM_DO_NOT_TRACK", "VLLM_CONFIGURE_LOGGING", "VLLM_API_KEY", "VLLM_*_IP"),
    *("VLLM_*_PORT", "VLLM_PORT", "VLLM_*_HOST", "VLLM_*TIMEOUT*", "VLLM_*PROCESS_*"),
    *("VLLM_RAY_*", "VLLM_USE_RAY_*", "VLLM_DP_RANK*", "VLLM_DP_SIZE", "VLLM_*MULTIPROC*"),
    *("VLLM_RPC_BASE_PATH", "VLLM_SERVER_DEV_MODE", "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH"),
    *("VLLM_SYSTEM_START_DATE", "VLLM_RINGBUFFER_*", "VLLM_MQ_*", "VLLM_MSGPACK_*"),
    *("VLLM_USE_SPINLOOP_EXT", "VLLM_NIC_*", "VLLM_GPU_NIC_*", "VLLM_GPU_SYNC_CHECK"),
    *("VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_ELASTIC_EP_*", "VLLM_RANDOMIZE_DP_DUMMY_INPUTS"),
    *("VLLM_WSL2_ENABLE_PIN_MEMORY", "VLLM_USE_RUST_*", "VLLM_RUST_FRONTEND_PATH"),
    *("VLLM_CPU_OMP_THREADS_BIND", "VLLM_CPU_NUM_OF_RESERVED_CPU"),
    # offloads, which are refused
    *("VLLM_WEIGHT_OFFLOADING_DISABLE_*",),
    # requests and answers
    *("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_MAX_*_TOKENS"),
    *("VLLM_MAX_AUDIO_*", "VLLM_MAX_*DECODE*", "VLLM_MAX_*DOWNLOAD*", "VLLM_MAX_IMAGE_*"),
    *("VLLM_MAX_NUM_*", "VLLM_MAX_N_*", "VLLM_MAX_STOP_*", "VLLM_MAX_COMPLETION_*"),
    *("VLLM_MEDIA_*", "VLLM_MM_HASHER_ALGORITHM", "VLLM_VIDEO_*", "VLLM_OBJECT_STORAGE_*"),
    *("VLLM_CHAT_TEMPLATE_*", "VLLM_BEAM_*", "VLLM_HTTP_*", "VLLM_REQUEST_*"),
    *("VLLM_DISABLE_REQUEST_*", "VLLM_*TOOL*", "VLLM_GPT_OSS_*"),
    *("VLLM_ENABLE_RESPONSES_API_STORE", "VLLM_ENABLE_COHERE_API"),
    *("VLLM_USE_EXPERIMENTAL_PARSER_CONTEXT", "VLLM_USE_FASTOKENS", "VLLM_XGRAMMAR_*"),
    *("VLLM_*_SAMPLER", "VLLM_*_SAMPLER_KERNEL", "VLLM_COMPUTE_NANS_*"),
    *("VLLM_RAISE_ON_LOGIT_NANS", "VLLM_V1_*", "VLLM_ENABLE_V1_*", "VLLM_USE_V2_MODEL_RUNNER"),
    # the KV cache, and how it moves
    *("VLLM_KV_*", "VLLM_*_KV_[OC]*", "VLLM_CPU_KVCACHE_SPACE", "VLLM_PREFIX_CACHE_*"),
    *("VLLM_MOONCAKE_*", "VLLM_P2P_*", "VLLM_NIXL_*", "VLLM_EC_*", "VLLM_SSM_CONV_STATE_LAYOUT"),
    *("VLLM_SKIP_P2P_CHECK",),
    # graphs and compilation, and what is only chosen as a step runs
    *("VLLM_*COMPILE*", "VLLM_*_AOT_*", "VLLM_*CUDAGRAPH*", "VLLM_ENABLE_INDUCTOR_*"),
    *("VLLM_ENABLE_PREGRAD_PASSES", "VLLM_ENABLE_STARTUP_PLAN", "VLLM_USE_BYTECODE_HOOK"),
    *("VLLM_USE_LAYERNAME", "VLLM_*WARMUP*", "VLLM_FLASHINFER_AUTOTUNE_*", "VLLM_GC_*"),
    *("VLLM_TRITON_*", "VLLM_FLASHINFER_WORKSPACE_*", "VLLM_*_STREAM", "VLLM_*STREAM_*THRESHOLD"),
    *("VLLM_MULTI_STREAM_*", "VLLM_ADAPTIVE_VERIFICATION_*", "VLLM_SPARSE_INDEXER_MAX_LOGITS_MB"),
    *("VLLM_ROCM_SLEEP_*", "VLLM_*ALLREDUCE*", "VLLM_*SYMM_MEM", "VLLM_DISABLE_PYNCCL"),
    *("VLLM_DISTRIBUTED_USE_SPLIT_GROUP", "VLLM_DBO_*", "VLLM_DEEPEP_*", "VLLM_*_GEMM_[AR][RS]"),
    *("VLLM_FLASHINFER_MOE_A2A_*", "VLLM_USE_DIRECT_DCP_*", "VLLM_*QUICK_REDUCE_*"),
    *("VLLM_LORA_*PDL", "VLLM_LORA_*_STREAM", "VLLM_MARLIN_USE_ATOMIC_ADD", "VLLM_MOE_ROUTING_*"),
    *("VLLM_MOE_SKIP_PADDING", "VLLM_MAX_TOKENS_PER_EXPERT_*", "VLLM_USE_FUSED_MOE_GROUPED_TOPK"),
    *("VLLM_GDN_*", "VLLM_ENABLE_FLA_*", "VLLM_CPU_ATTN_*", "VLLM_ALLOW_CHUNKED_*"),
    *("VLLM_*_RMSNORM", "VLLM_USE_OINK_OPS", "VLLM_ROCM_*_ATTN", "VLLM_ROCM_*_ATTENTION"),
    *("VLLM_ROCM_USE_AITER_MHA", "VLLM_ROCM_USE_AITER_CUSTOM_AR"),
    *("VLLM_ROCM_USE_AITER_TRITON_[RS]*", "VLLM_ROCM_AITER_MLA_*"),
    *("VLLM_ROCM_AITER_MOE_DISPATCH_*", "VLLM_ROCM_MONO_DECODE", "VLLM_ROCM_MUSE_MOE_REDUCE_*"),
    *("VLLM_XPU_ENABLE_XPU_GRAPH", "VLLM_XPU_PP_MICROBATCH"),
)
